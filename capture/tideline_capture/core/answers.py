"""Answers: how an open request stands, for its asker, and which ended lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tideline.contract.manifest import OpenRequest, TableDump
from tideline.contract.request import Answer, RequestState, TableProgress, encode_answer

ERRORS_SHOWN = 10
"""Of the tables of a request that failed, in its own error; each table has its own beside."""
RECENT_BYTES_MAX = 1 << 20
"""Of the answers that are remembered; the newest always is."""


class RecentAnswers:
    """The last answers of requests and commands that ended, at most ``keep`` of them."""

    def __init__(self, answers: Iterable[Answer], keep: int) -> None:
        self._answers = {answer.request_id: answer for answer in answers}
        self._keep = keep

    @property
    def all(self) -> tuple[Answer, ...]:
        """Oldest first."""
        return tuple(self._answers.values())

    def get(self, request_id: str) -> Answer | None:
        """The answer, if it is remembered; without a manifest's number it is not durable yet, and
        may not be reported."""
        return self._answers.get(request_id)

    def durable(self, answers: Iterable[Answer]) -> None:
        """Note in which manifest these ended."""
        known = self._answers
        self._answers |= {one.request_id: one for one in answers if one.request_id in known}

    def remember(self, answer: Answer) -> None:
        known = self._answers
        known[answer.request_id] = answer
        size = sum(len(encode_answer(one)) for one in known.values())
        while len(known) > self._keep or (size > RECENT_BYTES_MAX and len(known) > 1):
            size -= len(encode_answer(known.pop(next(iter(known)))))


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What holds up a request. ``waiting``, by table: what its chunk waits for. ``rates``, by
    table: rows per second. ``throttled`` says what its chunks are slowed down by."""

    paused: bool = False
    throttled: str | None = None
    waiting: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)


def answer_of(item: OpenRequest, now: Circumstances = Circumstances()) -> Answer:
    """What is to be said of ``item`` under the circumstances."""
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
