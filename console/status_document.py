"""What ``tideline status --json`` prints: one versioned document, and how it is put together.

The chain is the record: it says what is captured, parked, unproven, asked for. Redis only adds
what a worker says of itself and how far a dump is right now; the warehouse says what is merged.
Each of the three may be away, and the document says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from console.freshness import Lateness
from console.recorded import ended_answers, open_answers
from tideline.contract.document import written_version
from tideline.contract.json_schemas import DIALECT
from tideline.contract.manifest import (
    Manifest,
    OpenState,
    TableCondition,
    TableState,
)
from tideline.contract.modes import Mode
from tideline.contract.parking import Stop
from tideline.contract.planning import complete_through
from tideline.contract.request import Answer, RequestState
from tideline.contract.timeliness import Kept
from tideline.control import WorkerStatus
from tideline.planner.verified import VerifiedThrough

STATUS_VERSION = 1


class WorkerState(StrEnum):
    """Whether anybody reads the log; ``unknown`` when neither Redis nor the chain can tell."""

    LIVE = "live"
    PASSIVE = "passive"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class TableStage(StrEnum):
    """What is the matter with a table; a dump that is under way comes first, then why it is due."""

    LIVE = "live"
    DUMPING = "dumping"
    PARKED = "parked"
    UNPROVEN = "unproven"
    BLOCKED = "blocked"


class Through(msgspec.Struct, frozen=True):
    """How far something is: a manifest, a sequence, and the source's clock, µs since 1970 UTC.

    ``source_time_us`` is the clock in the newest heartbeat with nothing left out before it: all
    that was committed by then is contained.
    """

    seq: int
    manifest_number: int | None = None
    source_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What the warehouse says of a table: how far it is, and what is wrong with it.

    ``manifest_number`` is 0 while nothing was merged. ``foreign`` names changes by others that no
    full dump has healed yet; ``problem`` says why it cannot be merged into at all; ``pending``
    counts rows that lack values (None: that is not known). ``mode`` is how it is kept,
    ``mode_wanted`` what the settings say where that is another. ``stop``: the change of columns
    that its merges stop before, because the settings say so.
    """

    manifest_number: int = 0
    seq: int = 0
    source_time_us: int | None = None
    foreign: tuple[str, ...] = ()
    problem: str | None = None
    pending: int | None = 0
    mode: Mode | None = None
    mode_wanted: Mode | None = None
    stop: Stop | None = None

    @property
    def doubt(self) -> str | None:
        """Why the table may not hold all that was merged into it; None when it does."""
        if self.problem is not None:
            return self.problem
        if self.foreign:
            return f"the warehouse's table was changed by others: {', '.join(self.foreign)}"
        if self.pending is None:
            return "rows may lack values that the log did not carry: the last receipt is not there"
        if self.pending:
            return f"{self.pending} rows lack values that the log did not carry and are read again"
        return None


class ChainStatus(msgspec.Struct, frozen=True):
    """The chain's end. ``lag_s``: how old, by this machine's clock, what is captured is."""

    manifest_number: int
    incarnation: str
    term: int
    writer: str
    last_seq: int
    position: str
    released: bool = False
    source_time_us: int | None = None
    written_at_us: int | None = None
    lag_s: float | None = None


class TableStatus(msgspec.Struct, frozen=True):
    """One table. ``since_seq``, ``reason`` and ``hint`` belong to every state but ``live``.

    ``merged`` is None when nothing of it was merged yet; when ``up_to_date``, so that nothing
    captured waits to be merged, it moves with the chain. ``lag_s``: how old, by this machine's
    clock, the warehouse's table is. ``complete_through_us``: the source's clock up to which the
    warehouse's table lacks nothing, None while it is in doubt. ``late``: why it is further behind
    than the objective allows, None when it is not. ``slo``: how far the objective was kept.
    ``verified``: up to where `tideline verify` last proved every row, None before it did.
    ``mode``: how the warehouse's table is kept, None when that is not known; ``mode_wanted``: what
    the settings say where that is another, which `tideline rebuild` switches to.
    """

    table: str
    state: TableStage
    captured: Through
    merged: Through | None = None
    up_to_date: bool = False
    lag_s: float | None = None
    since_seq: int | None = None
    reason: str | None = None
    hint: str | None = None
    complete_through_us: int | None = None
    late: Lateness | None = None
    slo: Kept | None = None
    pending: int | None = 0
    verified: VerifiedThrough | None = None
    mode: Mode | None = None
    mode_wanted: Mode | None = None


class Status(msgspec.Struct, frozen=True):
    """The document. ``chain`` is None before a worker ran for the first time.

    ``dumps`` have not ended, ``ended`` have lately (newest last). ``paused``: all dumps are, those
    that are asked for later included. ``slo`` is that of all tables together. ``control_error``
    and ``warehouse_error`` say why what they would tell is missing. Answers leave out what has no
    value; elsewhere it is null.
    """

    pipeline: str
    at_us: int
    worker: WorkerState
    workers: tuple[WorkerStatus, ...] = ()
    chain: ChainStatus | None = None
    tables: tuple[TableStatus, ...] = ()
    dumps: tuple[Answer, ...] = ()
    ended: tuple[Answer, ...] = ()
    paused: bool = False
    slo: Kept | None = None
    control_error: str | None = None
    warehouse_error: str | None = None
    version: int = written_version(STATUS_VERSION)
    requires: tuple[str, ...] = ()


def json_schema() -> bytes:
    """The document's JSON Schema, kept as ``docs/schemas/status.v1.json``."""
    schema: dict[str, Any] = {"$schema": DIALECT, **msgspec.json.schema(Status)}
    root = schema["$defs"][Status.__name__]
    root["properties"]["version"] = {"const": STATUS_VERSION}
    root["required"] = [*root["required"], "version"]
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def make_status(
    pipeline: str,
    tail: Manifest | None,
    state: OpenState,
    *,
    workers: Sequence[WorkerStatus] | None,
    merged: Mapping[str, Merged],
    takeover_after_s: float,
    now_us: int,
) -> Status:
    """The document from what was read; ``workers`` is None when Redis did not answer.

    How late the tables are is for `status_watch` to add. ``merged`` was read before ``tail`` and
    ``state``, so that it claims no more than they do.
    ``now_us`` is this machine's clock.
    """
    return Status(
        pipeline=pipeline,
        at_us=now_us,
        worker=worker_state(tail, workers, takeover_after_s=takeover_after_s, now_us=now_us),
        workers=tuple(workers or ()),
        chain=None if tail is None else _chain(tail, now_us),
        tables=() if tail is None else _tables(tail, state, merged, now_us),
        dumps=dumps_under_way(state, workers or ()),
        ended=ended_answers(state),
        paused=state.paused,
    )


def worker_state(
    tail: Manifest | None,
    workers: Sequence[WorkerStatus] | None,
    *,
    takeover_after_s: float,
    now_us: int,
) -> WorkerState:
    """Whether anybody reads the log: what the workers say, else whether the chain still grows."""
    if any(worker.state == "live" for worker in workers or ()):
        return WorkerState.LIVE
    grows = (
        tail is not None
        and not tail.released
        and tail.written_at_us is not None
        and now_us - tail.written_at_us < takeover_after_s * 1_000_000
    )
    if grows:
        return WorkerState.LIVE
    if workers:
        return WorkerState.PASSIVE
    return WorkerState.UNKNOWN if workers is None and tail is None else WorkerState.STOPPED


def dumps_under_way(state: OpenState, workers: Sequence[WorkerStatus]) -> tuple[Answer, ...]:
    """The open requests, each as the live worker last told of it, else as the chain has it."""
    ended = {answer.request_id for answer in state.recent}
    told = {
        dump.request_id: dump
        for worker in workers
        for dump in worker.dumps
        if dump.request_id not in ended
    }
    known = {answer.request_id: answer for answer in open_answers(state)}
    # What the chain has not yet: accepted a moment ago, by a manifest newer than the tail read.
    return tuple((known | told).values())


def _chain(tail: Manifest, now_us: int) -> ChainStatus:
    return ChainStatus(
        manifest_number=tail.manifest_number,
        incarnation=tail.incarnation,
        term=tail.term,
        writer=tail.writer,
        last_seq=tail.last_seq,
        position=str(tail.position),
        released=tail.released,
        source_time_us=tail.source_time_us,
        written_at_us=tail.written_at_us,
        lag_s=_age_s(tail.source_time_us, now_us),
    )


def _tables(
    tail: Manifest, state: OpenState, merged: Mapping[str, Merged], now_us: int
) -> tuple[TableStatus, ...]:
    dumping = {
        dump.table
        for request in state.requests
        for dump in request.dumps
        if not RequestState(dump.state).final and not request.request.verifies
    }
    return tuple(
        _table(name, found, tail, merged.get(name), dumping=name in dumping, now_us=now_us)
        for name, found in sorted(state.tables.items())
    )


def _table(
    name: str,
    found: TableState,
    tail: Manifest,
    merged: Merged | None,
    *,
    dumping: bool,
    now_us: int,
) -> TableStatus:
    stage, since_seq, reason = _stage(found, merged)
    up_to_date = _waits_for_nothing(found, merged)
    through = _merged_through(found, tail, merged, up_to_date=up_to_date)
    return TableStatus(
        table=name,
        state=TableStage.DUMPING if dumping else stage,
        captured=_captured_through(found, tail),
        merged=through,
        up_to_date=up_to_date,
        lag_s=None if through is None else _age_s(through.source_time_us, now_us),
        since_seq=since_seq,
        reason=reason,
        hint=found.hint,
        complete_through_us=None if through is None else through.source_time_us,
        pending=0 if merged is None else merged.pending,
        mode=None if merged is None else merged.mode,
        mode_wanted=None if merged is None else merged.mode_wanted,
    )


def _stage(found: TableState, merged: Merged | None) -> tuple[TableStage, int | None, str | None]:
    """The table's state with since when and why: the source's side first, then the warehouse's."""
    if found.condition is not TableCondition.LIVE or merged is None:
        return TableStage(found.condition.value), found.since_seq, found.reason
    if merged.problem is not None:
        return TableStage.BLOCKED, None, merged.problem
    if merged.foreign:
        return TableStage.UNPROVEN, None, merged.doubt
    if merged.stop is not None:
        return TableStage.BLOCKED, merged.stop.seq, str(merged.stop)
    return TableStage.LIVE, None, None


def _waits_for_nothing(found: TableState, merged: Merged | None) -> bool:
    """A table that was parked before anything of it was captured has nothing to wait for."""
    if merged is None or merged.manifest_number == 0:
        return found.condition is TableCondition.PARKED and found.last_data_manifest == 0
    if merged.problem is not None:
        return False
    return merged.manifest_number >= found.last_data_manifest


def _captured_through(found: TableState, tail: Manifest) -> Through:
    if found.condition is TableCondition.PARKED and found.since_seq is not None:
        return Through(found.since_seq)
    return Through(tail.last_seq, tail.manifest_number, tail.source_time_us)


def _merged_through(
    found: TableState, tail: Manifest, merged: Merged | None, *, up_to_date: bool
) -> Through | None:
    if merged is None or merged.manifest_number == 0:
        return None
    if merged.doubt is not None:
        return Through(merged.seq, merged.manifest_number, None)
    if up_to_date and found.condition is not TableCondition.PARKED:
        return Through(tail.last_seq, tail.manifest_number, complete_through(found, tail))
    return Through(merged.seq, merged.manifest_number, merged.source_time_us)


def _age_s(at_us: int | None, now_us: int) -> float | None:
    """Seconds since ``at_us``; clocks that differ may make it negative, which is shown as 0."""
    return None if at_us is None else round(max(0, now_us - at_us) / 1_000_000, 3)
