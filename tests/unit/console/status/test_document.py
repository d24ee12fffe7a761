"""The status document: who reads the log, how far each table is, and what it is held up by."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
import msgspec
import pytest

from tests.fixtures.progress import merged_to, warehouse
from tideline.contract.clocks import apart, utc
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.modes import Mode
from tideline.contract.open_state import (
    CapturedFrom,
    OpenRequest,
    OpenState,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress
from tideline.contract.table_layout import TableLayout
from tideline.contract.timeliness import Compliance, Lateness, Stage
from tideline.control import WorkerStatus
from tideline.control.merger import MergerStatus
from tideline.planner import WarehouseTables
from tideline.planner.publisher_status import PublisherState, PublisherStatus
from tideline.planner.table_status import Beginning, EarlierRows, TableStage, TableStatus, Through
from tideline_capture.sources.finding import check_clocks
from tideline_console.status.document import (
    ChainStatus,
    Status,
    WorkerState,
    json_schema,
    version_1,
)
from tideline_console.status.making import dumps_under_way, make_status, worker_state
from tideline_console.status.text import print_status

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden" / "status"
SCHEMAS = ROOT / "docs" / "schemas"

NOW = 1_800_000_000_000_000
SECOND = 1_000_000

NOTHING = WarehouseTables()


def tail(**changed: object) -> Manifest:
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
        source_time_us=NOW - 3 * SECOND,
        written_at_us=NOW - 2 * SECOND,
        state=OpenState(),
    )
    return msgspec.structs.replace(manifest, **changed)


def worker(state: str = "live", *dumps: Answer) -> WorkerStatus:
    return WorkerStatus(
        writer=f"{state}-1",
        pipeline="shop",
        state="live" if state == "live" else "passive",
        host="h",
        pid=1,
        term=2,
        manifest_number=40,
        last_seq=900,
        updated_at_us=NOW,
        dumps=dumps,
    )


def status(
    tables: dict[str, TableState],
    merged: WarehouseTables | None = None,
    *,
    requests: tuple[OpenRequest, ...] = (),
    workers: tuple[WorkerStatus, ...] | None = (),
) -> Status:
    return make_status(
        "shop",
        tail(),
        OpenState(requests=requests, tables=tables),
        workers=workers,
        merged=merged or NOTHING,
        takeover_after_s=15.0,
        now_us=NOW,
    )


def table(state: TableState, merged: TableStatus | None = None) -> TableStatus:
    (found,) = status({"public.a": state}, warehouse(merged)).tables
    return found


OLD = NOW - 16 * SECOND


@pytest.mark.parametrize(
    ("end", "workers", "expected"),
    [
        (tail(), (worker(),), WorkerState.LIVE),
        (tail(), (worker("passive"), worker()), WorkerState.LIVE),
        (tail(), (), WorkerState.LIVE),
        (tail(), None, WorkerState.LIVE),
        (tail(written_at_us=OLD), (worker(),), WorkerState.LIVE),
        (tail(written_at_us=OLD), (worker("passive"),), WorkerState.PASSIVE),
        (tail(written_at_us=OLD), (), WorkerState.STOPPED),
        (tail(written_at_us=OLD), None, WorkerState.STOPPED),
        (tail(written_at_us=None), (), WorkerState.STOPPED),
        (tail(released=True), (), WorkerState.STOPPED),
        (tail(released=True), (worker("passive"),), WorkerState.PASSIVE),
        (None, (), WorkerState.STOPPED),
        (None, (worker("passive"),), WorkerState.PASSIVE),
        (None, None, WorkerState.UNKNOWN),
    ],
)
def test_whether_anybody_reads_the_log(
    end: Manifest | None, workers: tuple[WorkerStatus, ...] | None, expected: WorkerState
) -> None:
    assert worker_state(end, workers, takeover_after_s=15.0, now_us=NOW) is expected


def test_a_table_of_which_all_is_merged_moves_with_the_chain() -> None:
    complete = TableState(last_data_manifest=31, complete_seq=600)
    found = table(complete, merged_to(31, 700, NOW - 60 * SECOND))
    assert found.up_to_date
    assert found.merged == found.captured == Through(900, 40, NOW - 3 * SECOND)
    assert found.lag_s == 3.0
    assert found.state is TableStage.ACTIVE


def test_a_table_that_was_never_dumped_is_complete_up_to_no_time() -> None:
    found = table(TableState(last_data_manifest=31), merged_to(31, 700))
    assert (found.merged, found.lag_s) == (Through(900, 40, None), None)


def test_a_table_that_waits_for_a_merge() -> None:
    found = table(TableState(last_data_manifest=32), merged_to(31, 700, NOW - 60 * SECOND))
    assert not found.up_to_date
    assert found.merged == Through(700, 31, NOW - 60 * SECOND)
    assert found.lag_s == 60.0


def test_a_table_that_was_never_merged() -> None:
    found = table(TableState(last_data_manifest=32))
    assert (found.merged, found.lag_s, found.up_to_date) == (None, None, False)
    quarantined = TableState(TableCondition.QUARANTINED, since_seq=1, reason="no key")
    assert table(quarantined).up_to_date


def test_a_quarantined_table_is_captured_through_where_it_was_quarantined() -> None:
    quarantined = TableState(
        TableCondition.QUARANTINED,
        last_data_manifest=10,
        since_seq=77,
        reason="no key",
        hint="ALTER",
    )
    found = table(quarantined, merged_to(12, 70, NOW - 9 * SECOND))
    assert found.state is TableStage.QUARANTINED
    assert found.captured == Through(77)
    assert found.merged == Through(70, 12, NOW - 9 * SECOND)
    assert (found.since_seq, found.reason, found.hint) == (77, "no key", "ALTER")


def test_what_the_warehouse_says_of_a_live_table() -> None:
    live = TableState(last_data_manifest=31)
    foreign = table(live, merged_to(31, 700, unhealed=("DELETE at version 9",)))
    assert foreign.state is TableStage.NEEDS_RESNAPSHOT
    assert "DELETE at version 9" in (foreign.reason or "")
    assert foreign.hint == "`tideline dump public.a` heals it"
    broken = table(live, merged_to(problem="set back"))
    assert (broken.state, broken.reason) == (TableStage.TARGET_BLOCKED, "set back")
    assert (broken.merged, broken.up_to_date) == (None, False)


def test_a_dump_under_way_comes_first_and_the_reason_stays() -> None:
    request = OpenRequest(
        DumpRequest("r1", ("public.*",)),
        (
            TableDump("public.a", state="running", first_low_seq=5, chunks=2, rows=20),
            TableDump("public.b", state="done", first_low_seq=4, chunks=1, rows=3),
        ),
    )
    doubted = TableState(TableCondition.NEEDS_RESNAPSHOT, since_seq=9, reason="DDL")
    found = status(
        {"public.a": doubted, "public.b": TableState()}, requests=(request,), workers=None
    )
    assert [one.state for one in found.tables] == [TableStage.DUMPING, TableStage.ACTIVE]
    assert (found.tables[0].since_seq, found.tables[0].reason) == (9, "DDL")
    (dump,) = found.dumps
    assert dump.state is RequestState.RUNNING
    assert [(one.chunks, one.rows) for one in dump.tables] == [(2, 20), (1, 3)]


def test_the_worker_knows_more_of_a_dump_than_the_chain() -> None:
    request = OpenRequest(DumpRequest("r1", ("public.a",)), (TableDump("public.a"),))
    progress = TableProgress("public.a", RequestState.RUNNING, chunks=7)
    reported = Answer("r1", RequestState.RUNNING, tables=(progress,))
    fresh = Answer("r2", RequestState.ACCEPTED)
    found = status({}, requests=(request,), workers=(worker("live", reported, fresh),))
    assert found.dumps == (reported, fresh)
    assert status({}, requests=(request,)).dumps[0].state is RequestState.ACCEPTED


def test_without_redis_the_chain_tells_as_much_as_it_knows() -> None:
    """Paused requests, estimates, and how requests ended; commands are no requests."""
    asked = DumpRequest("r1", ("public.a",), keys=(("1",), ("2",)))
    dump = TableDump("public.a", state="running", first_low_seq=5, chunks=1, rows=1)
    failed = Answer(
        "r0", RequestState.FAILED, tables=(TableProgress("public.a", RequestState.FAILED),)
    )
    command = Answer("c0", RequestState.DONE)
    state = OpenState(
        requests=(OpenRequest(asked, (dump,), paused=True),), recent=(failed, command)
    )
    found = make_status(
        "shop",
        tail(),
        state,
        workers=None,
        merged=WarehouseTables(),
        takeover_after_s=15.0,
        now_us=NOW,
    )
    (reported,) = found.dumps
    assert reported.state is RequestState.PAUSED
    assert (reported.tables[0].chunks, reported.tables[0].rows_estimate) == (1, 2)
    assert (found.ended, found.paused) == ((failed,), False)
    everything = msgspec.structs.replace(state, paused=True)
    later = msgspec.structs.replace(state.requests[0], paused=False)
    everything = msgspec.structs.replace(everything, requests=(later,))
    assert dumps_under_way(everything, ())[0].state is RequestState.PAUSED


def test_what_ended_is_not_under_way_although_a_worker_still_says_so() -> None:
    stale = Answer("r0", RequestState.RUNNING)
    ended = Answer("r0", RequestState.DONE, tables=(TableProgress("a.b", RequestState.DONE),))
    assert dumps_under_way(OpenState(recent=(ended,)), (worker("live", stale),)) == ()


def test_before_the_first_worker() -> None:
    found = make_status(
        "shop",
        None,
        OpenState(),
        workers=(),
        merged=WarehouseTables(),
        takeover_after_s=15.0,
        now_us=NOW,
    )
    assert (found.worker, found.chain, found.tables) == (WorkerState.STOPPED, None, ())


@pytest.mark.parametrize(
    ("created", "complete", "earlier", "words"),
    [
        (True, 50, EarlierRows.NONE, "where it was created"),
        (True, 90, EarlierRows.DUMPED, None),
        (False, None, EarlierRows.MISSING, "rows from before are not"),
        (False, 90, EarlierRows.DUMPED, None),
    ],
)
def test_from_where_on_a_table_is_captured(
    created: bool,
    complete: int | None,
    earlier: EarlierRows,
    words: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is said for as long as no dump has made up for what was before."""
    begun = CapturedFrom(50, NOW, created=created)
    found = status({"a.b": TableState(captured_from=begun, complete_seq=complete)})
    assert found.tables[0].captured_from == Beginning(50, NOW, earlier)
    print_status(found)
    reported = capsys.readouterr().out
    assert ("a.b is captured from seq 50 (source time " in reported) == (words is not None)
    assert words is None or words in reported


def golden() -> dict[str, Status]:
    """One document with every field, one with the fewest."""
    progress = TableProgress(
        "public.orders",
        RequestState.RUNNING,
        chunks=3,
        chunks_estimate=11,
        rows=30_000,
        rows_estimate=110_000,
        waiting="a transaction",
    )
    dump = Answer("cli-1", RequestState.RUNNING, manifest_number=38, tables=(progress,))
    full = Status(
        pipeline="shop",
        at_us=NOW,
        merger=MergerStatus(
            "vm-1",
            "shop",
            "merging",
            "vm",
            7,
            NOW - 60_000_000,
            NOW,
            38,
            tables_merged=9,
            merged_at_us=NOW,
            waiting=1,
            plans=("merger-1/1",),
            failing={"public.a": "a part is missing"},
            memory_bytes=2 << 30,
            replaced=1,
            reason="its process ended with 70",
        ),
        publishers=(
            PublisherStatus(
                "events",
                "kafka",
                PublisherState.WAITING,
                seq=880,
                waiting=20,
                lag_s=1.5,
                events=860,
                per_s=12.5,
                writer="vm-2",
                logged_at_us=NOW,
                dead_letters=2,
                reason="Kafka does not answer",
            ),
        ),
        worker=WorkerState.LIVE,
        workers=(
            msgspec.structs.replace(
                worker("live", dump),
                position="16/B374D848",
                source_time_us=NOW,
                note="throttled",
                restart_for=("store.url",),
            ),
        ),
        chain=ChainStatus(
            manifest_number=40,
            incarnation="i1",
            term=2,
            writer="live-1",
            last_seq=900,
            position="16/B374D848",
            released=True,
            source_time_us=NOW - 3 * SECOND,
            written_at_us=NOW - 2 * SECOND,
            lag_s=3.0,
        ),
        tables=(
            TableStatus(
                table="public.orders",
                state=TableStage.NEEDS_RESNAPSHOT,
                captured=Through(900, 40, NOW - 3 * SECOND),
                merged=Through(700, 31, NOW - 60 * SECOND),
                up_to_date=True,
                lag_s=60.0,
                since_seq=650,
                reason="ADD COLUMN … DEFAULT",
                hint="tideline dump public.orders",
                complete_through_us=NOW - 60 * SECOND,
                late=Lateness(Stage.TABLE, "it is unproven", "tideline dump public.orders"),
                slo=Compliance(99.0, 30.0, NOW - 3600 * SECOND, 200, 4, 98.0, 2.0, 61.5),
                pending=2,
                mode=Mode.CURRENT,
                mode_wanted=Mode.HISTORY,
                deletion_vectors=True,
                deletion_vectors_wanted=False,
                layout=TableLayout(partition_by=("region",)),
                layout_wanted=TableLayout(cluster_by=("id",)),
                unread_by={"delta-rs": ("deletionVectors",)},
                target="file:///var/lib/tideline/warehouse/public/orders",
                captured_from=Beginning(12, NOW - 3600 * SECOND, EarlierRows.DUMPED),
                format="delta",
                format_wanted="iceberg",
                former="iceberg://tideline/public/orders",
            ),
        ),
        dumps=(dump,),
        ended=(
            Answer(
                "cli-0",
                RequestState.FAILED,
                manifest_number=30,
                tables=(TableProgress("public.orders", RequestState.FAILED, error="cancelled"),),
                error="public.orders: cancelled",
            ),
        ),
        paused=True,
        slo=Compliance(99.0, 30.0, NOW - 3600 * SECOND),
        control_error="redis cannot be reached",
        warehouse_error="not readable",
    )
    least = Status(pipeline="shop", at_us=NOW, worker=WorkerState.UNKNOWN)
    return {"full": full, "least": least}


@pytest.mark.parametrize("name", ["full", "least"])
def test_golden_files(name: str) -> None:
    raw = (GOLDEN / "v2" / f"{name}.json").read_bytes().strip()
    assert msgspec.json.decode(raw, type=Status) == golden()[name]
    assert msgspec.json.format(msgspec.json.encode(golden()[name]), indent=2) == raw


@pytest.mark.parametrize("name", ["full", "least"])
def test_version_1_is_what_it_was(name: str) -> None:
    raw = (GOLDEN / "v1" / f"{name}.json").read_bytes().strip()
    encoded = msgspec.json.encode(version_1(golden()[name]))
    assert msgspec.json.format(encoded, indent=2) == raw


@pytest.mark.parametrize("stage", TableStage)
def test_version_1_has_a_name_for_each_state(stage: TableStage) -> None:
    schema = json.loads((SCHEMAS / "status.v1.json").read_text())
    one = TableStatus("public.a", stage, Through(1))
    shown = version_1(msgspec.structs.replace(golden()["least"], tables=(one,)))
    jsonschema.validate(json.loads(msgspec.json.encode(shown)), schema)
    assert len(schema["$defs"]["TableStage"]["enum"]) == len(TableStage) - 1


@pytest.mark.parametrize("condition", TableCondition)
def test_a_state_has_one_name(condition: TableCondition) -> None:
    """In the document, in texts, and in what the chain is shown as."""
    assert TableStage[condition.name].value == condition.shown


def test_the_schema_is_the_documents() -> None:
    assert (SCHEMAS / "status.v2.json").read_bytes() == json_schema()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["full", "least"])
def test_golden_files_fit_the_schema(name: str, version: int) -> None:
    schema = json.loads((SCHEMAS / f"status.v{version}.json").read_text())
    document = json.loads((GOLDEN / f"v{version}" / f"{name}.json").read_text())
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "worker": "odd"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "version": 3}, schema)


DAY = 86_400 * SECOND
DONE = {"public.a": TableState(complete_seq=5, last_data_manifest=4)}


def poisoned(source_time_us: int, written_at_us: int | None, stamp_us: int | None = None) -> Status:
    """Of a chain and a target that believed a clock which was wrong."""
    return make_status(
        "shop",
        tail(source_time_us=source_time_us, written_at_us=written_at_us),
        OpenState(tables=DONE),
        workers=(),
        merged=warehouse(merged_to(40, 900, stamp_us)),
        takeover_after_s=15.0,
        now_us=NOW,
    )


class TestClocks:
    """No table is complete through a time to come, whatever the chain says."""

    @pytest.mark.parametrize("at_us", [NOW + DAY, 9 * 10**18, 1 << 62])
    def test_a_chain_is_believed_up_to_its_writer_s_clock(
        self, at_us: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = poisoned(at_us, NOW - 2 * SECOND)
        assert found.tables[0].complete_through_us == NOW - 2 * SECOND
        assert found.tables[0].lag_s == 2.0
        print_status(found)
        reported = capsys.readouterr().out
        assert "the source's clock is " in reported and " ahead of this machine's" in reported

    def test_without_a_writer_s_clock_nothing_is_claimed(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        found = poisoned(9 * 10**18, None)
        (one,) = found.tables
        assert (one.complete_through_us, one.lag_s) == (None, None)
        assert found.chain is not None and found.chain.lag_s is None
        print_status(found)
        assert "9000000000000000000 µs" in capsys.readouterr().out

    def test_clocks_that_agree_are_not_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = poisoned(NOW + 60 * SECOND, NOW + 60 * SECOND)
        assert found.chain is not None and found.chain.clocks_apart is None
        print_status(found)
        assert "clock" not in capsys.readouterr().out


def test_how_far_clocks_are_apart_is_told_of_any_numbers() -> None:
    assert apart(NOW + 299 * SECOND, NOW) is None
    hour = 3600 * SECOND
    assert apart(NOW + hour, NOW) == "the source's clock is 1:00:00 ahead of this machine's"
    assert apart(NOW - hour, NOW) == "the source's clock is 1:00:00 behind this machine's"
    assert apart(1 << 80, NOW) is not None
    assert utc(1 << 80) is None and utc(-(1 << 80)) is None


def test_doctor_names_clocks_that_are_apart() -> None:
    assert check_clocks(time.time_ns() // 1000).level == "ok"
    found = check_clocks(time.time_ns() // 1000 + DAY)
    assert (found.name, found.level) == ("clocks", "warning")
    assert " ahead of this machine's" in found.message and found.fix is not None
