"""Describes a request's progress for a log: the same as `tideline status` shows, never a row's
value."""

from __future__ import annotations

from datetime import timedelta

from tideline.contract.request import Answer, TableProgress
from tideline_airflow.log_lines import log_line

TABLES_SHOWN = 10


def describe(answer: Answer) -> str:
    """Return one line: states, chunks, rows, rate, the time that is left, and what holds it up. Of
    many tables, those that have not ended come first."""
    words = [f"request {answer.request_id}: {answer.state.value}"]
    tables = sorted(answer.tables, key=lambda table: table.state.final)
    words += [_table(table) for table in tables[:TABLES_SHOWN]]
    if len(tables) > TABLES_SHOWN:
        ended = sum(table.state.final for table in tables)
        words.append(f"… {len(tables)} tables, {ended} ended")
    return log_line("; ".join(words))


def standing(answer: Answer) -> object:
    """Return what is logged at once when it changes: states. Figures, and what a chunk waits for,
    change all the time."""
    return answer.state, [(table.table, table.state) for table in answer.tables]


def _table(table: TableProgress) -> str:
    about = "" if table.chunks_estimate is None else f" of about {table.chunks_estimate}"
    text = f"{table.table} {table.state.value}, chunk {table.chunks}{about}"
    about = "" if table.rows_estimate is None else f" of about {table.rows_estimate}"
    text += f", {table.rows}{about} rows"
    if table.rows_per_s is not None and not table.state.final:
        text += f", {table.rows_per_s:.0f} a second"
    if table.remaining_s is not None and not table.state.final:
        text += f", {timedelta(seconds=round(table.remaining_s))} left"
    if table.waiting:
        text += f", waiting: {table.waiting}"
    return text


def reasons(answer: Answer) -> str:
    """Return why a request ended as it did, each reason once."""
    tables = [f"{table.table}: {table.error}" for table in answer.tables if table.error]
    summary = answer.error or ""
    parts = [summary, *(text for text in tables if text not in summary), answer.hint or ""]
    return log_line("; ".join(part for part in parts if part))
