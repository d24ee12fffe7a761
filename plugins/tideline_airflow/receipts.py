"""Summarises receipts: for a log, for readers of a task's result, and as its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideline.contract.aggregate_tables import AggregateResult
from tideline.contract.errors import Unavailable
from tideline.contract.maintenance import TableMaintenance
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.log_lines import log_line


def newest(receipts: Sequence[Receipt]) -> list[TableReceipt]:
    """Return each table's last receipt; ``receipts`` are in the order they were run. Sorted by
    name."""
    found: dict[str, TableReceipt] = {}
    for receipt in receipts:
        found.update({one.table: one for one in receipt.tables})
    return [found[table] for table in sorted(found)]


def bad(tables: Sequence[TableReceipt]) -> list[TableReceipt]:
    """Return the tables that are not where their plan was to bring them."""
    return [one for one in tables if one.outcome in (Outcome.FAILED, Outcome.REFUSED)]


def failure(
    failed: Sequence[TableReceipt | TableMaintenance | AggregateResult],
    among: int,
    how: str,
    what: str = "tables",
) -> AirflowException:
    """Return the error that names what failed, of so many of ``what`` that ``how`` says; it is
    tried again only where that may help."""
    mendable = all(one.error_kind == Unavailable.__name__ for one in failed)
    kind = AirflowException if mendable else AirflowFailException
    text = "; ".join(f"{_named(one)} ({one.error or one.outcome.value})" for one in failed)
    return kind(f"{len(failed)} of {among} {what} {how}: {log_line(text)}")


def _named(one: TableReceipt | TableMaintenance | AggregateResult) -> str:
    return one.aggregate if isinstance(one, AggregateResult) else one.table


def summary(tables: Sequence[TableReceipt]) -> dict[str, dict[str, Any]]:
    """Return ``{table: {"outcome", "applied_seq", "complete_through_us", "rows_read"}}``."""
    return {
        one.table: {
            "outcome": one.outcome.value,
            "applied_seq": one.applied_seq,
            "complete_through_us": one.complete_through_us,
            "rows_read": one.rows_read,
        }
        for one in tables
    }


def format_receipts(receipts: Sequence[TableReceipt]) -> str:
    """Format a table for the log: one line per warehouse table, columns aligned."""
    rows = [("table", "outcome", "read", "inserted", "updated", "deleted", "seq", "seconds")]
    rows += [
        (
            log_line(one.table),
            one.outcome.value,
            str(one.rows_read),
            str(one.inserted),
            str(one.updated),
            str(one.deleted),
            str(one.applied_seq),
            f"{one.seconds:.1f}",
        )
        for one in receipts
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [
        f"{log_line(one.table)}: billed for {one.bytes_billed / 1e6:,.1f} MB"
        for one in receipts
        if one.bytes_billed
    ]
    return "\n".join(["merged:", *lines])
