"""Makes answers from the open state: the durable progress of each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tideline.contract.open_state import OpenRequest, OpenState, TableDump
from tideline.contract.request import Answer, RequestState, TableProgress

ERRORS_SHOWN = 10
"""Maximum failed tables that a request's own error names; each table has its own error, too."""


def open_answers(state: OpenState) -> tuple[Answer, ...]:
    """Describe the requests that have not ended, oldest first, as far as they are durable."""
    return tuple(
        answer_of(item, Circumstances(paused=item.paused or state.paused))
        for item in state.requests
    )


def ended_answers(state: OpenState) -> tuple[Answer, ...]:
    """List the requests that ended lately, newest last; commands, without tables, are left out."""
    return tuple(answer for answer in state.recent if answer.tables)


def recorded_answer(state: OpenState, request_id: str) -> Answer | None:
    """Find what is durable of a request or command; None if it was never accepted, or long ago."""
    known = (*open_answers(state), *state.recent)
    return next((answer for answer in known if answer.request_id == request_id), None)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Causes that hold up a request. ``waiting``, by table: what its chunk waits for. ``rates``, by
    table: rows per second. ``throttled`` says what its chunks are slowed down by."""

    paused: bool = False
    throttled: str | None = None
    waiting: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


def answer_of(item: OpenRequest, now: Circumstances = Circumstances()) -> Answer:
    """Describe how far ``item`` is under the circumstances."""
    tables = tuple(_progress(item, dump, now) for dump in item.dumps)
    states = {table.state for table in tables}
    errors = [f"{table.table}: {table.error}" for table in tables if table.error]
    if states <= {RequestState.DONE, RequestState.FAILED}:
        state = RequestState.FAILED if errors else RequestState.DONE
    elif now.paused:
        state = RequestState.PAUSED
    elif states == {RequestState.ACCEPTED}:
        state = RequestState.ACCEPTED
    else:
        state = RequestState.THROTTLED if now.throttled else RequestState.RUNNING
    if len(errors) > ERRORS_SHOWN:
        errors[ERRORS_SHOWN:] = [f"… {len(errors)} tables failed"]
    return Answer(
        item.request.request_id, state, tables=tables, error="; ".join(errors) if errors else None
    )


def _state_of(dump: TableDump, now: Circumstances) -> RequestState:
    state = _STATES[dump.state]
    if state.final or not (now.paused or now.throttled):
        return state
    if now.paused:
        return RequestState.PAUSED
    return RequestState.THROTTLED if state is RequestState.RUNNING else state


_STATES = {state.value: state for state in RequestState}


def _progress(item: OpenRequest, dump: TableDump, now: Circumstances) -> TableProgress:
    rows = dump.rows_estimate
    if item.request.keys is not None and not item.request.ranged:
        rows = len(item.request.keys)
    state, rate = _state_of(dump, now), now.rates.get(dump.table)
    held_up = None if now.paused or state.final else now.throttled
    remaining = None
    if rate and rows is not None and not state.final:
        remaining = max(0, rows - dump.rows) / rate
    chunks = None
    if rows is not None and dump.chunks and dump.rows:
        per_chunk = max(dump.rows / dump.chunks, 1.0)
        chunks = max(dump.chunks, round(rows / per_chunk))
    return TableProgress(
        dump.table,
        state,
        chunks=dump.chunks,
        chunks_estimate=chunks,
        rows=dump.rows,
        rows_estimate=rows,
        waiting=now.waiting.get(dump.table) or held_up,
        error=dump.error,
        rows_per_s=None if rate is None else round(rate, 1),
        remaining_s=None if remaining is None else round(remaining, 1),
    )
