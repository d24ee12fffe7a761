"""What may never stand together in a status, whatever was read: the rules, over drawn states."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.fixtures.progress import merged_to, warehouse
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import (
    OpenRequest,
    OpenState,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.contract.timeliness import (
    Lateness,
    MergeRun,
    Objective,
    Stage,
    TableFigures,
    Timeliness,
)
from tideline.contract.verification import Verified
from tideline.control import Heard, WorkerStatus
from tideline.planner import WarehouseTables
from tideline.planner.table_status import TableStage, TableStatus
from tideline.planner.verified import LastVerification
from tideline_console.freshness import FreshnessWatch
from tideline_console.status.document import Status, WorkerState
from tideline_console.status.watch import SilenceLimits, StatusInputs, status_of

SECOND = 1_000_000
NOW = 1_800_000_000 * SECOND
WITHIN_S, WINDOW_S = 300, 86_400
LIMITS = SilenceLimits(heartbeat_s=5.0, takeover_after_s=15.0)
LAST_SEQ, LAST_MANIFEST = 900, 40
A, OTHER = "public.a", "public.b"
"""The pipeline's table, and one that merge runs tell of besides."""
WRITERS = ("w1", "w2", "w3")

AGO_S = st.sampled_from((0, 3, 7, 14, 20, 100, 299, 400, 4_000, 90_000))
SEQ = st.integers(0, LAST_SEQ)
SETS = st.sampled_from(((), (A,), (OTHER,), (A, OTHER), (A, OTHER)))


def ago(seconds: float) -> int:
    return NOW - round(seconds * SECOND)


@st.composite
def tails(draw: st.DrawFn, began_s: int) -> Manifest:
    fresh = draw(st.sampled_from((True, True, False)))
    written_s, source_s = (1, 3) if fresh else (draw(AGO_S), draw(AGO_S))
    reported = fresh or draw(st.booleans())
    return Manifest(
        pipeline="shop",
        incarnation="i1",
        manifest_number=LAST_MANIFEST,
        term=2,
        writer=draw(st.sampled_from(WRITERS[:2])),
        previous_digest="",
        kind=draw(st.sampled_from((ManifestKind.HEARTBEAT, ManifestKind.SEGMENT))),
        first_seq=LAST_SEQ,
        last_seq=LAST_SEQ,
        position=PostgresPosition(1),
        identity=SourceIdentity("postgres", "7", 1, "shop"),
        source_time_us=ago(min(source_s, began_s)) if reported else None,
        written_at_us=ago(min(written_s, began_s)),
        released=draw(st.sampled_from((False, False, False, True))),
    )


@st.composite
def table_states(draw: st.DrawFn, *, sound: bool, dumped: bool) -> TableState:
    """``sound``: in no doubt; ``dumped``: whole, once at least."""
    condition = TableCondition.ACTIVE if sound else draw(st.sampled_from(TableCondition))
    live = condition is TableCondition.ACTIVE
    return TableState(
        condition=condition,
        schema="f",
        last_data_manifest=draw(st.sampled_from((1, 20, 40))),
        since_seq=None if live else draw(SEQ),
        reason=None if live else "why",
        complete_seq=draw(SEQ) if dumped else None,
        doubts=draw(st.integers(1 if condition is TableCondition.NEEDS_RESNAPSHOT else 0, 2)),
    )


@st.composite
def targets(draw: st.DrawFn, *, sound: bool) -> WarehouseTables:
    """As `applied_state` reads them: others' changes are told while no verification covers them."""
    verification = None
    if draw(st.booleans()):
        kept = Verified("t", draw(SEQ), 30, 4, "app", "v", doubts=draw(st.integers(0, 2)))
        verification = LastVerification(
            kept, draw(st.sampled_from((None, None, "changed by others: version 7")))
        )
    holds = verification is not None and verification.broken is None
    one = merged_to(
        manifest=draw(st.sampled_from((0, 7, 20, 40))),
        seq=draw(SEQ),
        through_us=draw(st.sampled_from((None, *map(ago, (3, 400, 4_000, 90_000))))),
        unhealed=() if sound or holds or draw(st.booleans()) else ("version 7: UPDATE",),
        pending=0 if sound else draw(st.sampled_from((0, 2, None))),
    )
    return warehouse(one, verification)


@st.composite
def runs(draw: st.DrawFn, began_s: int) -> MergeRun:
    ended_us = ago(min(draw(st.sampled_from((3, 299, 400, 4_000))), began_s))
    figures = Timeliness(4, draw(st.integers(0, 4)), WITHIN_S * SECOND, 9 * SECOND, ended_us)
    chosen, held = draw(SETS), draw(st.sampled_from(((), (), (), (A,), (OTHER,))))
    outcome = draw(st.sampled_from(("applied", "already_applied", "failed")))
    return MergeRun(
        f"p{draw(st.integers(0, 9))}",
        ended_us,
        tuple(TableFigures(name, outcome, figures) for name in chosen),
        dict.fromkeys(held, "decide first"),
        capped=draw(st.booleans()),
    )


@st.composite
def words(draw: st.DrawFn, writer: str) -> Heard:
    """What a worker said last, when it is long enough ago to be known, and not for ever."""
    silent_s = draw(st.sampled_from((0.2, 1.0, 4.9, 5.1, 14.0, 29.0)))
    dump = Answer("r1", RequestState.RUNNING)
    status = WorkerStatus(
        writer=writer,
        pipeline="shop",
        state=draw(st.sampled_from(("live", "passive"))),
        host="h",
        pid=1,
        term=2,
        manifest_number=LAST_MANIFEST,
        last_seq=LAST_SEQ,
        updated_at_us=ago(silent_s),
        dumps=(dump,) if draw(st.booleans()) else (),
    )
    return Heard(status, silent_s)


@st.composite
def reads(draw: st.DrawFn) -> tuple[StatusInputs, FreshnessWatch]:
    began_s = draw(st.sampled_from((3, 299, 301, 4_000, 4_000, 1_000_000)))
    dump = TableDump(A, state="running", first_low_seq=5)
    request = OpenRequest(DumpRequest("r1", (A,)), (dump,))
    sound, dumped = (draw(st.sampled_from((True, True, True, False))) for _ in range(2))
    state = OpenState(
        requests=(request,) if draw(st.booleans()) else (),
        tables={A: draw(table_states(sound=sound, dumped=dumped))},
    )
    away = not draw(st.integers(0, 9))
    known = sorted(draw(st.sets(st.sampled_from(WRITERS))))
    read = StatusInputs(
        tail=draw(tails(began_s)),
        state=state,
        heard=draw(st.none() | st.just([draw(words(one)) for one in known])),
        merged=None if away else draw(targets(sound=sound)),
        began_us=ago(began_s),
        now_us=NOW,
    )
    many = draw(st.sampled_from((0, 1, 1, 2, 4)))
    reported = sorted((draw(runs(began_s)) for _ in range(many)), key=lambda run: run.ended_us)
    return read, FreshnessWatch(
        lambda _: Objective(99.0, WITHIN_S * SECOND), reported, ago(WINDOW_S)
    )


@pytest.mark.thorough
@settings(max_examples=400)
@given(reads())
def test_a_status_never_contradicts_itself(drawn: tuple[StatusInputs, FreshnessWatch]) -> None:
    read, watch = drawn
    status = status_of("shop", read, watch, LIMITS)
    check_workers(status, read)
    check_times(status, read)
    for one in status.tables:
        check_verification(one, read)
        check_late(one, status, read, watch)


def check_verification(one: TableStatus, read: StatusInputs) -> None:
    """A verification that holds ends every doubt that there was where it was made."""
    holds = one.verified is not None and one.verified.invalid is None
    if not holds or one.verified is None:
        return
    event("a verification that holds")
    found = read.state.tables[one.table]
    doubted = found.condition is TableCondition.NEEDS_RESNAPSHOT and one.reason is not None
    if one.state is TableStage.NEEDS_RESNAPSHOT or doubted:
        assert one.since_seq is not None and one.verified.seq < one.since_seq, one
    # It is worth nothing where the doubt was found after the rows were read.
    if one.state is TableStage.ACTIVE and found.condition is TableCondition.NEEDS_RESNAPSHOT:
        assert read.merged is not None
        assert read.merged.verifications[one.table].verified.doubts == found.doubts, one
    if one.late is not None and one.state is TableStage.ACTIVE:
        assert "needs-resnapshot" not in one.late.reason and "no dump" not in one.late.reason, one


def check_workers(status: Status, read: StatusInputs) -> None:
    """One is live at the most, the one that wrote the chain's end, and not for longer than it may
    be silent."""
    assert read.tail is not None
    live = [one for one in status.workers if one.state == "live"]
    assert [one.writer for one in live] in ([], [read.tail.writer])
    signs = {one.status.writer: one.status.updated_at_us for one in read.heard or ()}
    if read.tail.writer in signs:
        wrote_us = read.tail.written_at_us or 0
        signs[read.tail.writer] = max(signs[read.tail.writer], wrote_us)
    stopped = {read.tail.writer} if read.tail.released else set()
    assert {one.writer for one in status.workers} == set(signs) - stopped
    for one in status.workers:
        silent = NOW - signs[one.writer] > LIMITS.heartbeat_s * SECOND
        assert silent == (one.state == "silent") == (one.silent_since_us is not None), one
        assert one.silent_since_us in (None, signs[one.writer])
    if live:
        assert status.worker is WorkerState.LIVE
    if status.worker is WorkerState.LIVE:
        assert live or read.tail.writer not in signs
        assert not read.tail.released
    if status.worker is WorkerState.PASSIVE:
        assert any(one.state == "passive" for one in status.workers)
    if status.worker is WorkerState.SILENT:
        assert {one.state for one in status.workers} <= {"silent", "fenced"}
    # Nobody tells how fast a dump is that nobody reads.
    reported = [dump for one in live for dump in one.dumps]
    assert all(dump in reported or dump.tables for dump in status.dumps)


def check_times(status: Status, read: StatusInputs) -> None:
    """Nothing was late, merged or watched before the pipeline's first manifest."""
    assert read.tail is not None and read.began_us is not None
    kept = [status.slo, *(one.slo for one in status.tables)]
    assert all(one is None or one.since_us >= read.began_us for one in kept)
    for one in status.tables:
        if one.complete_through_us is None:
            continue
        assert one.lag_s is not None
        if one.up_to_date and one.state is TableStage.ACTIVE:
            assert one.complete_through_us == read.tail.through_us
            assert one.complete_through_us <= (read.tail.written_at_us or NOW)


def check_late(one: TableStatus, status: Status, read: StatusInputs, watch: FreshnessWatch) -> None:
    """A table is late only after the objective's time, and by a stage that holds it up."""
    late = one.late
    if late is None:
        return
    event(f"late by {late.stage.value}: {late.reason[:24]}")
    assert read.merged is not None and read.began_us is not None
    since_us = one.complete_through_us or read.began_us
    assert NOW - since_us > WITHIN_S * SECOND, one
    for text in re.findall(r"(?:since|at) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC", late.reason):
        moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        if late.stage in (Stage.SCHEDULE, Stage.CAPTURE):
            assert moment.timestamp() >= read.began_us // SECOND, late
    if late.stage in (Stage.MERGE, Stage.SCHEDULE):
        check_merging(one, late, watch)
    if late.stage is Stage.CAPTURE and "no worker" in late.reason:
        assert not any(worker.state == "live" for worker in status.workers)
    if late.stage is Stage.STORE:
        assert status.worker is WorkerState.LIVE
    if late.hint is not None and late.hint.startswith("tideline dump"):
        assert one.state is not TableStage.DUMPING, one


def check_merging(one: TableStatus, late: Lateness, watch: FreshnessWatch) -> None:
    """Merges are to blame only where one was asked for, its caps only where they cut it short."""
    assert not one.up_to_date
    of_it = [
        run
        for run in watch.runs
        if one.table in run.delayed or any(it.table == one.table for it in run.tables)
    ]
    last = of_it[-1] if of_it else None
    recent = last is not None and NOW - last.ended_us <= WITHIN_S * SECOND
    if late.stage is Stage.SCHEDULE:
        assert not recent, late
    else:
        assert last is not None and one.table not in last.delayed
        failed = any(it.outcome == "failed" for it in last.tables)
        assert recent or failed, late
        if late.hint is not None and "parts_max" in late.hint:
            assert last.capped, late
