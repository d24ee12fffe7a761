"""Which stage a table is late by; and that no table is called complete that lacks something."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.fixtures.progress import merged_to, warehouse
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import (
    REMOVED,
    OpenState,
    TableCondition,
    TableState,
)
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.timeliness import (
    Lateness,
    MergeRun,
    Objective,
    Stage,
    TableFigures,
    Timeliness,
)
from tideline.control import WorkerStatus
from tideline.control.merger import MergerStatus
from tideline.planner.table_status import TableStatus
from tideline.planner.verified import VerifiedThrough
from tideline_console.freshness import ChainEnd, FreshnessWatch
from tideline_console.status.document import Status
from tideline_console.status.making import make_status
from tideline_console.status.metrics import metrics
from tideline_console.status.watch import watched

PAGE = Path(__file__).resolve().parents[3] / "docs" / "METRICS.md"
SECOND = 1_000_000
NOW = 1_800_000_000_000_000
WITHIN = 300 * SECOND
A = "public.a"
LIVE = TableState(last_data_manifest=31, complete_seq=600)
MERGED = merged_to(31, 700, NOW - 400 * SECOND)
BEHIND = msgspec.structs.replace(LIVE, last_data_manifest=35)


def tail(*, source_s: float = 3, written_s: float = 2, **changed: Any) -> Manifest:
    manifest = Manifest(
        pipeline="shop",
        incarnation="i1",
        manifest_number=40,
        term=2,
        writer="w1",
        previous_digest="",
        kind=ManifestKind.HEARTBEAT,
        first_seq=901,
        last_seq=900,
        position=PostgresPosition(0x16B374D848),
        identity=SourceIdentity("postgres", "7", 1, "shop"),
        source_time_us=NOW - round(source_s * SECOND),
        written_at_us=NOW - round(written_s * SECOND),
        state=OpenState(),
    )
    return msgspec.structs.replace(manifest, **changed)


def worker(note: str | None = None, state: Any = "live") -> WorkerStatus:
    return WorkerStatus("w1", "shop", state, "h", 1, 2, 40, 900, NOW, note=note)


def ran(ago_s: float, outcome: str = "applied", table: str = A, **more: Any) -> MergeRun:
    figures = TableFigures(table, outcome, **more)
    return MergeRun(f"p{ago_s}", NOW - round(ago_s * SECOND), (figures,))


def status(
    state: TableState,
    merged: TableStatus | None,
    *,
    end: Manifest | None = None,
    workers: tuple[WorkerStatus, ...] | None = (),
    runs: tuple[MergeRun, ...] = (),
    merger: bool = False,
) -> tuple[Status, FreshnessWatch]:
    end = tail() if end is None else end
    opened = OpenState(tables={A: state})
    known = warehouse(merged)
    made = make_status(
        "shop",
        end,
        opened,
        workers=workers,
        merged=known,
        takeover_after_s=15.0,
        now_us=NOW,
    )
    watch = FreshnessWatch(lambda table: Objective(99.0, WITHIN), runs, NOW - 86_400 * SECOND)
    return watched(
        made, ChainEnd(end, workers, 15.0, NOW, merger=merger), opened, known, watch
    ), watch


def table(state: TableState, merged: TableStatus | None, **more: Any) -> TableStatus:
    return status(state, merged, **more)[0].tables[0]


def late(state: TableState, merged: TableStatus | None, **more: Any) -> Lateness:
    found = table(state, merged, **more).late
    assert found is not None
    return found


def test_an_idle_table_is_complete_through_the_newest_heartbeat() -> None:
    found = table(LIVE, MERGED)
    assert (found.complete_through_us, found.late) == (NOW - 3 * SECOND, None)


@pytest.mark.parametrize(
    ("end", "workers", "stage", "reported"),
    [
        (
            tail(source_s=400, written_s=399),
            (),
            Stage.CAPTURE,
            "no worker extends the chain",
        ),
        (
            tail(source_s=400, written_s=399),
            None,
            Stage.CAPTURE,
            "no worker extends the chain",
        ),
        (
            tail(source_s=400, written_s=399),
            (worker(state="passive"),),
            Stage.CAPTURE,
            "no worker extends the chain",
        ),
        (tail(source_s=400, released=True), (), Stage.CAPTURE, "its worker was stopped"),
        (tail(source_s=400, written_s=399), (worker(),), Stage.STORE, "the chain ends at"),
        (
            tail(source_s=400),
            (worker("the store is behind"),),
            Stage.STORE,
            "the store is behind",
        ),
        (
            tail(source_s=400, kind=ManifestKind.SEGMENT),
            (worker(),),
            Stage.CAPTURE,
            "the log is read behind",
        ),
        (tail(source_s=400), (worker(),), Stage.SOURCE, "no heartbeat newer"),
        (tail(source_s=400), None, Stage.SOURCE, "no heartbeat newer"),
    ],
    ids=[
        "dead",
        "dead, redis away",
        "passive only",
        "stopped",
        "store away",
        "store behind",
        "reading behind",
        "source away",
        "source away, redis away",
    ],
)
def test_what_stands_still_before_the_merge(
    end: Manifest, workers: tuple[WorkerStatus, ...] | None, stage: Stage, reported: str
) -> None:
    """Whatever it is, no table is complete beyond the last heartbeat that was captured."""
    found = late(LIVE, MERGED, end=end, workers=workers)
    assert found.stage is stage
    assert reported in found.reason
    assert table(LIVE, MERGED, end=end, workers=workers).complete_through_us == end.source_time_us
    # It is named first: merges that stand still as well are not what is waited for.
    assert late(BEHIND, MERGED, end=end, workers=workers).stage is stage


def test_a_worker_that_died_a_moment_ago_makes_nothing_late_yet() -> None:
    assert table(LIVE, MERGED, end=tail(source_s=200, written_s=199)).late is None


@pytest.mark.parametrize(
    ("runs", "stage", "reported"),
    [
        ((), Stage.SCHEDULE, "no merge has run since"),
        ((ran(700),), Stage.SCHEDULE, "the last merge of it ended at"),
        ((ran(10),), Stage.MERGE, "lacks what was captured since"),
        ((replace(ran(10), capped=True),), Stage.MERGE, "do not keep up"),
        # Merges run, but nobody asks for this table, or none has been planned since it changed.
        ((ran(10, table="public.b"),), Stage.SCHEDULE, "none of it since"),
        (
            (replace(ran(10, table="public.b"), capped=True),),
            Stage.SCHEDULE,
            "none of it since",
        ),
        (
            (ran(700), ran(10, table="public.b")),
            Stage.SCHEDULE,
            "the last merge of it ended at",
        ),
        (
            (ran(20), ran(10, "failed", error_kind="CorruptData", error="part is torn")),
            Stage.MERGE,
            "CorruptData: part is torn",
        ),
        (
            (ran(20, "failed", error="lost"), MergeRun("empty", NOW - 5 * SECOND)),
            Stage.MERGE,
            "lost",
        ),
        (
            (MergeRun("held", NOW - SECOND, delayed={A: "decide first"}),),
            Stage.TABLE,
            "decide first",
        ),
    ],
)
def test_what_is_captured_and_not_merged(
    runs: tuple[MergeRun, ...], stage: Stage, reported: str
) -> None:
    found = late(BEHIND, MERGED, runs=runs)
    assert (found.stage, reported in found.reason) == (stage, True), found
    assert table(BEHIND, MERGED, runs=runs).complete_through_us == NOW - 400 * SECOND


def test_beside_a_merger_no_schedule_is_to_be_looked_at() -> None:
    found = late(BEHIND, MERGED, merger=True)
    assert found.stage is Stage.MERGE and "no merge has run since" in found.reason
    assert "its log" in str(found.hint)


@pytest.mark.parametrize(
    ("state", "merged", "reported"),
    [
        (LIVE, merged_to(31, 700, NOW, problem="it was set back (RESTORE)"), "RESTORE"),
        (LIVE, merged_to(31, 700, NOW, unhealed=("version 9: DELETE",)), "version 9: DELETE"),
        (LIVE, merged_to(31, 700, NOW, pending=3), "3 rows lack values"),
        (LIVE, merged_to(31, 700, NOW, pending=None), "may lack values"),
        (TableState(last_data_manifest=31), MERGED, "no dump of the whole table"),
        (
            TableState(
                TableCondition.NEEDS_RESNAPSHOT,
                last_data_manifest=31,
                complete_seq=6,
                since_seq=800,
            ),
            MERGED,
            "needs-resnapshot",
        ),
        (
            TableState(
                TableCondition.SCHEMA_BLOCKED, last_data_manifest=35, complete_seq=6, since_seq=800
            ),
            MERGED,
            "blocked",
        ),
        (
            TableState(
                TableCondition.QUARANTINED, last_data_manifest=31, since_seq=1, reason="no key"
            ),
            None,
            "no key",
        ),
    ],
    ids=[
        "restored",
        "foreign",
        "pending",
        "unknown",
        "undumped",
        "unproven",
        "blocked",
        "quarantined",
    ],
)
def test_a_table_that_is_in_doubt_is_complete_through_nothing_newer(
    state: TableState, merged: TableStatus | None, reported: str
) -> None:
    found = table(state, merged)
    newest = NOW - 400 * SECOND
    assert found.complete_through_us is None or found.complete_through_us <= newest
    assert found.late is not None
    assert (found.late.stage, reported in found.late.reason) == (Stage.TABLE, True)


def test_a_table_that_is_gone_is_not_late() -> None:
    gone = TableState(
        TableCondition.QUARANTINED, last_data_manifest=31, since_seq=1, reason=REMOVED
    )
    assert table(gone, MERGED, end=tail(source_s=4000, written_s=4000)).late is None


def test_a_warehouse_that_is_away_makes_no_table_late() -> None:
    made, watch = status(LIVE, MERGED)
    opened = OpenState(tables={A: LIVE})
    end = ChainEnd(tail(source_s=4000), (), 15.0, NOW)
    assert watched(made, end, opened, None, watch).tables[0].late is None


def test_the_objective_and_the_metrics() -> None:
    figures = Timeliness(200, 4, WITHIN, 900 * SECOND, NOW - 60 * SECOND)
    runs = (
        ran(60, timeliness=figures, attempts=3, conflicts=2, bytes_billed=10_485_760),
        ran(10, "failed", error_kind="Unavailable", bytes_billed=1),
    )
    made, watch = status(BEHIND, MERGED, runs=runs)
    compliance = made.tables[0].slo
    assert compliance is not None and compliance == made.slo
    assert (compliance.changes, compliance.late, compliance.percent, compliance.burn) == (
        200,
        4,
        98.0,
        2.0,
    )
    merger = MergerStatus("m", "shop", "merging", "vm", 7, 1, 2, failing={"public.a": "torn"})
    text = metrics(replace(made, merger=merger), watch)
    assert 'tideline_merger_failing_tables{pipeline="shop"} 1.0' in text
    labels = f'pipeline="shop",table="{A}"'
    for line in (
        f"tideline_slo_burn{{{labels}}} 2.0",
        f'tideline_table_late{{pipeline="shop",stage="merge",table="{A}"}} 1.0',
        f'tideline_table_late{{pipeline="shop",stage="store",table="{A}"}} 0.0',
        f"tideline_table_merge_attempts{{{labels}}} 4.0",
        f"tideline_table_merge_conflicts{{{labels}}} 2.0",
        f"tideline_table_merge_bytes_billed{{{labels}}} 1.0485761e+07",
        f'tideline_table_merges{{outcome="failed",{labels}}} 1.0',
    ):
        assert line in text, text
    served = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    page = PAGE.read_text().partition("# Metrics of the warehouse's tables")[2]
    assert served == set(re.findall(r"^\| `(tideline_\w+)`", page, re.MULTILINE))
    assert "tideline_table_verified_through_seconds{" not in text
    proven = (replace(made.tables[0], verified=VerifiedThrough(7, 3, 5 * SECOND)),)
    gone = (replace(made.tables[0], verified=VerifiedThrough(7, 3, 5 * SECOND, invalid="RESTORE")),)
    line = f"tideline_table_verified_through_seconds{{{labels}}} 5.0"
    assert line in metrics(replace(made, tables=proven), watch)
    assert line not in metrics(replace(made, tables=gone), watch)
    unknown, watch = status(LIVE, merged_to(31, 700, NOW, problem="set back"))
    assert "tideline_table_complete_through_seconds{" not in metrics(unknown, watch)
