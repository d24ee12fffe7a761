"""Makes a status from the chain, Redis and the warehouse.

The chain records what is captured, quarantined, in doubt and requested. Redis only adds the
workers' reports and the present progress of dumps; the warehouse has what is merged. Each of the
three may be unavailable, and the document names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tideline.contract.answers import ended_answers, open_answers
from tideline.contract.clocks import apart
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.planning.table_plans import complete_through
from tideline.contract.request import Answer, RequestState
from tideline.control import WORDS_S, Heard, WorkerStatus
from tideline.planner import WarehouseTables
from tideline.planner.progress import captured_through
from tideline.planner.table_status import (
    Beginning,
    EarlierRows,
    TableStage,
    TableStatus,
    Through,
)
from tideline_console.status.document import ChainStatus, Status, WorkerState


def make_status(
    pipeline: str,
    tail: Manifest | None,
    state: OpenState,
    *,
    workers: Sequence[WorkerStatus] | None,
    merged: WarehouseTables,
    takeover_after_s: float,
    now_us: int,
) -> Status:
    """Make the document from what was read; ``workers`` is None when Redis did not answer.

    `watch` adds how late the tables are. ``merged`` was read before ``tail`` and ``state``, so that
    it claims no more than they do.
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


def judged(
    heard: Iterable[Heard], tail: Manifest | None, heartbeat_s: float
) -> tuple[WorkerStatus, ...]:
    """Judge the workers' last reports, which were read before ``tail``.

    The chain alone decides which worker is live: the one that wrote its end, unless it stops there;
    then it is left out. A worker that has neither reported nor extended the chain for longer than
    ``heartbeat_s`` is silent, whatever its last report was.
    """
    stopped = None if tail is None or not tail.released else tail.writer
    silent_after_s = max(heartbeat_s, WORDS_S)
    return tuple(
        _judged(one, tail, silent_after_s) for one in heard if one.status.writer != stopped
    )


def _judged(heard: Heard, tail: Manifest | None, silent_after_s: float) -> WorkerStatus:
    status, silent_s = heard
    wrote = tail is not None and tail.writer == status.writer
    last_us = status.updated_at_us
    if tail is not None and wrote and tail.written_at_us is not None:
        # Both times are by its clock: it has extended the chain since.
        last_us = max(last_us, tail.written_at_us)
        silent_s -= (last_us - status.updated_at_us) / 1_000_000
    if silent_s > silent_after_s:
        return replace(status, state="silent", silent_since_us=last_us)
    if tail is None or (status.state == "passive" and not wrote):
        return status
    return replace(status, state="live" if wrote else "fenced")


def worker_state(
    tail: Manifest | None,
    workers: Sequence[WorkerStatus] | None,
    *,
    takeover_after_s: float,
    now_us: int,
) -> WorkerState:
    """Return the state of the log's reader from the ``workers``, as `judged`, or else from whether
    the chain still grows."""
    states = {worker.state for worker in workers or ()}
    if "live" in states:
        return WorkerState.LIVE
    grows = (
        tail is not None
        and not tail.released
        and tail.written_at_us is not None
        and now_us - tail.written_at_us < takeover_after_s * 1_000_000
    )
    lost = tail is not None and any(
        worker.writer == tail.writer and worker.state == "silent" for worker in workers or ()
    )
    if grows and not lost:
        return WorkerState.LIVE
    if "passive" in states:
        return WorkerState.PASSIVE
    if lost:
        return WorkerState.SILENT
    return WorkerState.UNKNOWN if workers is None and tail is None else WorkerState.STOPPED


def dumps_under_way(state: OpenState, workers: Sequence[WorkerStatus]) -> tuple[Answer, ...]:
    """Return the open requests, each as the live worker last reported it, else from the chain."""
    ended = {answer.request_id for answer in state.recent}
    from_record = {
        dump.request_id: dump
        for worker in workers
        if worker.state == "live"
        for dump in worker.dumps
        if dump.request_id not in ended
    }
    known = {answer.request_id: answer for answer in open_answers(state)}
    # The chain may lack a request accepted a moment ago, by a manifest newer than the tail read.
    return tuple((known | from_record).values())


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
        lag_s=_age_s(_come(tail.through_us, now_us), now_us),
        clocks_apart=_ahead(tail.source_time_us, now_us),
    )


def _tables(
    tail: Manifest, state: OpenState, merged: WarehouseTables, now_us: int
) -> tuple[TableStatus, ...]:
    dumping = {
        dump.table
        for request in state.requests
        for dump in request.dumps
        if not RequestState(dump.state).final and not request.request.verifies
    }
    return tuple(
        _table(name, found, tail, merged, dumping=name in dumping, now_us=now_us)
        for name, found in sorted(state.tables.items())
    )


def _table(
    name: str,
    found: TableState,
    tail: Manifest,
    merged: WarehouseTables,
    *,
    dumping: bool,
    now_us: int,
) -> TableStatus:
    verified = merged.verified(name, found)
    found = merged.settled(name, found)
    captured = captured_through(found, tail)
    read = merged.tables.get(name, TableStatus(name, TableStage.ACTIVE, captured))
    up_to_date = _waits_for_nothing(found, read)
    through = read.merged
    current = up_to_date and found.condition is not TableCondition.QUARANTINED
    if through is not None and current and merged.doubt(name) is None:
        through = Through(tail.last_seq, tail.manifest_number, complete_through(found, tail))
    through_us = None if through is None else _come(through.source_time_us, now_us)
    by_target = found.condition is TableCondition.ACTIVE and name in merged.tables
    shown = read if by_target else _by_source(read, found)
    return replace(
        shown,
        state=TableStage.DUMPING if dumping else shown.state,
        captured=captured,
        merged=through,
        up_to_date=up_to_date,
        lag_s=_age_s(through_us, now_us),
        complete_through_us=through_us,
        verified=verified,
        captured_from=_beginning(found),
    )


def _by_source(read: TableStatus, found: TableState) -> TableStatus:
    """Return the status with the source's state of the table, which comes before the target's."""
    return replace(
        read,
        state=TableStage[found.condition.name],
        since_seq=found.since_seq,
        reason=found.reason,
        hint=found.hint,
    )


def _beginning(found: TableState) -> Beginning | None:
    begun = found.captured_from
    if begun is None:
        return None
    earlier = EarlierRows.MISSING if found.complete_seq is None else EarlierRows.DUMPED
    if begun.created and found.complete_seq in (None, begun.seq):
        earlier = EarlierRows.NONE
    return Beginning(begun.seq, begun.source_time_us, earlier)


def _waits_for_nothing(found: TableState, read: TableStatus) -> bool:
    """Return whether nothing that is captured of the table waits to be merged; of one that was
    quarantined before any capture, nothing ever does."""
    if read.merged is None or read.merged.manifest_number is None:
        never = found.condition is TableCondition.QUARANTINED and found.last_data_manifest == 0
        return read.up_to_date or never
    if read.state is TableStage.TARGET_BLOCKED:
        return False
    return read.merged.manifest_number >= found.last_data_manifest


def _ahead(at_us: int | None, now_us: int) -> str | None:
    """Report a source clock ahead of this machine's; one behind it is only a lag."""
    return None if at_us is None or at_us < now_us else apart(at_us, now_us)


def _come(at_us: int | None, now_us: int) -> int | None:
    """Return ``at_us`` unless it is in the future, for which missing changes are unknown."""
    return None if _ahead(at_us, now_us) else at_us


def _age_s(at_us: int | None, now_us: int) -> float | None:
    """Return the seconds since ``at_us``; clock differences may make it negative, shown as 0."""
    return None if at_us is None else round(max(0, now_us - at_us) / 1_000_000, 3)
