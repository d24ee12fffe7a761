"""What status reads of freshness: a real store, real Delta logs, records of runs; no Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.fixtures.commits import commit_of_ours
from tests.fixtures.parts import HEARTBEAT_US, History, Row, Shaped, schema_of
from tideline.contract import layout
from tideline.contract.plan import CommitMetadata, app_id
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, encode_receipt, run_of
from tideline.contract.timeliness import MergeRun, Stage, Timeliness
from tideline.planner import applied_state, plan_merge
from tideline.planner.merges import Planning
from tideline.planner.runs import recent_runs, record_run
from tideline.planner.table_status import TableStatus
from tideline.settings import TableSettings
from tideline.store.objects import ObjectStore, open_store
from tideline_console.status import read_status, read_watch
from tideline_console.status import run as show
from tideline_console.status.document import Status

T = "public.t"
APP = app_id("shop", "one", T, 0)
SECOND = 1_000_000


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}), deletes_before=[(T, 0)])
    return made


def merged(
    history: History, plan_id: str, *, number: int = 2, pending: bool = False, ahead_us: int = 0
) -> None:
    """The target says that it has applied a manifest, as a merge of ``plan_id`` would, which
    believed a clock that was ``ahead_us``."""
    entry = history.chain.read(number)
    assert entry is not None
    commit_metadata = CommitMetadata(
        app_id=APP,
        pipeline="shop",
        incarnation="one",
        plan_id=plan_id,
        from_manifest=0,
        to_manifest=number,
        seq=entry.manifest.last_seq,
        complete_through_us=(entry.manifest.source_time_us or 0) + ahead_us,
        pending=pending,
        digest=entry.digest,
    )
    path = Path(history.target(T).removeprefix("file://"))
    rows = pa.table({"id": pa.array([number], pa.int32())})
    if not path.exists():
        names = {"pipeline": "shop", "incarnation": "one", "table": T}
        owner = {f"tideline.{name}": value for name, value in names.items()}
        DeltaTable.create(path, rows.schema, configuration=owner, raise_if_key_not_exists=False)
    commit_of_ours(path, rows, APP, number, commit_metadata)


def status(history: History) -> Status:
    return read_status(history.settings)


def table(history: History) -> TableStatus:
    (one,) = status(history).tables
    return one


def received(
    history: History, plan_id: str, pending: int, outcome: Outcome = Outcome.APPLIED
) -> None:
    receipt = TableReceipt(T, outcome, 2, 2, pending=pending)
    document = Receipt(plan_id, "shop", "one", (receipt,))
    key = layout.receipt_key("shop", plan_id)
    open_store(history.settings.store).put(key, encode_receipt(document))


def test_an_idle_table_moves_with_the_heartbeats(history: History) -> None:
    merged(history, "p1")
    assert table(history).complete_through_us == HEARTBEAT_US + 2 * SECOND
    for _ in range(3):
        history.commit()
    assert table(history).complete_through_us == HEARTBEAT_US + 5 * SECOND
    # Its worker is dead: nothing moves by itself, and it is late by that.
    found = table(history)
    assert found.up_to_date and found.late is not None
    assert found.late.stage is Stage.CAPTURE
    # What waits is not claimed.
    history.commit(Row(T, "u", {"id": 1}))
    assert table(history).complete_through_us == HEARTBEAT_US + 2 * SECOND


def test_a_target_is_complete_through_no_later_than_the_chain(history: History) -> None:
    """It was merged when the source's clock was a day ahead, and lacks a change since."""
    merged(history, "p1", ahead_us=86_400 * SECOND)
    history.commit(Row(T, "u", {"id": 1}))
    found = table(history)
    assert (found.complete_through_us, found.up_to_date) == (HEARTBEAT_US + 3 * SECOND, False)


def test_pending_rows_are_not_complete_nor_is_what_cannot_be_told(history: History) -> None:
    merged(history, "p1", pending=True)
    unknown = table(history)
    assert (unknown.complete_through_us, unknown.pending) == (None, None)
    received(history, "p1", 0, Outcome.FAILED)  # behind its commit: it did not come to count them
    assert (table(history).complete_through_us, table(history).pending) == (None, None)
    received(history, "p1", 3)
    some = table(history)
    assert (some.complete_through_us, some.pending) == (None, 3)
    assert applied_state(history.settings).tables[T].complete_through_us is None
    assert some.late is not None and some.late.stage is Stage.TABLE
    # The log only says that some may be: the last merge has counted none.
    received(history, "p1", 0)
    none = table(history)
    assert (none.complete_through_us, none.pending) == (HEARTBEAT_US + 2 * SECOND, 0)


def test_a_target_that_was_set_back_is_complete_through_nothing(history: History) -> None:
    merged(history, "p1")
    history.commit(Row(T, "u", {"id": 1}))
    merged(history, "p2", number=3)
    assert table(history).complete_through_us == HEARTBEAT_US + 3 * SECOND
    target = DeltaTable(history.target(T).removeprefix("file://"))
    target.restore(1)
    found = table(history)
    assert (found.complete_through_us, found.up_to_date) == (None, False)
    assert found.late is not None and "RESTORE" in found.late.reason


def test_plans_say_what_is_measured(history: History) -> None:
    """A rebuild repeats, in a table that nobody reads yet, what was queryable long ago."""
    own = {T: TableSettings(slo_within_s=7.0)}
    settings = history.settings.model_copy(update={"tables": own})
    for wanted, one in ((300, history.settings), (7, settings)):
        (table,) = plan_merge(one, plan_id=f"within {wanted}").tables
        assert table.within_us == wanted * SECOND
    planning = Planning(history.settings, open_store(history.settings.store), build=1)
    (shadow,) = planning.plan("rebuild", [T]).tables
    assert (shadow.build, shadow.within_us) == (1, 0)


def test_records_of_runs_are_read_by_their_time(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time_ns() // 1_000
    window_us = round(history.settings.slo.window_s * SECOND)

    def ran(plan_id: str, ago_us: int, changes: int, late: int) -> None:
        figures = Timeliness(changes, late, 300 * SECOND, SECOND, now - ago_us)
        receipt = TableReceipt(T, Outcome.APPLIED, 2, 2, timeliness=figures)
        record_run(
            history.settings, run_of(Receipt(plan_id, "shop", "one", (receipt,)), now - ago_us)
        )

    ran("too old", window_us + 60 * SECOND, 1_000, 1_000)
    ran("p1", 60 * SECOND, 90, 0)
    ran("p2", 50 * SECOND, 10, 2)
    # Tried again after its receipt was lost.
    ran("p2", 40 * SECOND, 10, 2)
    record_run(history.settings, MergeRun("idle", now - 30 * SECOND))
    merged(history, "p2")
    verified = status(history).slo
    assert verified is not None
    assert (verified.changes, verified.late, verified.percent, verified.burn) == (100, 2, 98.0, 2.0)
    show(history.settings, as_json=False)
    text = capsys.readouterr().out
    assert "public.t is late by capture: no worker extends the chain" in text
    assert "all tables: 98 % of 100 changes within 300 s since" in text
    assert "(objective 99 %, budget burn 2×, slowest 1 s)" in text
    show(history.settings, as_json=False, as_metrics=True)
    assert 'tideline_slo_burn{pipeline="shop",table="public.t"} 2.0' in capsys.readouterr().out
    watch = read_watch(history.settings)
    assert [run.plan_id for run in watch.runs] == ["p1", "p2", "p2", "idle"]
    newest, reached = recent_runs(history.settings, 0, 2)
    assert [run.plan_id for run in newest] == ["p2", "idle"]
    # It says how far back they go, and not that there were no others before.
    assert reached == newest[0].ended_us


def test_the_newest_of_many_runs_are_found_without_listing_all(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merger leaves nearly as many as a day has seconds."""
    now = time.time_ns() // 1_000
    for number in range(100):
        record_run(history.settings, MergeRun(f"p{number}", now - number * 600 * SECOND))
    listed: list[str] = []
    entries = ObjectStore.entries

    def counted(store: ObjectStore, prefix: str, after: str = "") -> Any:
        for page in entries(store, prefix, after):
            listed.extend(entry.key for entry in page)
            yield page

    monkeypatch.setattr(ObjectStore, "entries", counted)
    since = now - 100_000 * SECOND
    runs, reached = recent_runs(history.settings, since, 5)
    assert [run.plan_id for run in runs] == ["p4", "p3", "p2", "p1", "p0"]
    assert reached == runs[0].ended_us and len(listed) < 50
    assert len(recent_runs(history.settings, since, 1000)[0]) == 100
