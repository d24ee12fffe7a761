"""Garbage of what is over: tables that the source has no longer, and records of runs."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.blocks import PLAIN, roll_up
from tests.unit.planner.test_garbage import Case, row
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.contract.open_state import REMOVED, TableCondition
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.contract.timeliness import MergeRun
from tideline.planner import garbage, plan_merge
from tideline.planner.garbage import Fate, Garbage
from tideline.planner.maintaining import order_maintenance
from tideline.planner.runs import record_run, store_receipt
from tideline_console.status import read_status

pytestmark = pytest.mark.usefixtures("blocks_of_ten")

GONE_STATE = {"condition": TableCondition.QUARANTINED, "reason": REMOVED, "since_seq": 30}


def gone(root: Path, *, planned: bool = True) -> Case:
    """A table that was never dumped, so that all its parts are needed as long as it may be built
    again; then the source has it no longer."""
    case = Case(root, dumped=False)
    history = case.history
    history.commit(states={PLAIN: GONE_STATE})
    for _ in range(15):
        history.commit()
    roll_up(history)
    apply(history, history.last_number, PLAIN)
    if planned:
        assert history.plan().tables == ()
    return case


def remove(case: Case) -> None:
    shutil.rmtree(case.history.target(PLAIN).removeprefix("file://"))


def test_a_table_that_is_gone_and_was_removed_is_not_recreated(tmp_path: Path) -> None:
    case = gone(tmp_path)
    assert case.removed() == set()
    remove(case)
    plan = case.history.plan()
    assert plan.tables == ()
    assert f"`tideline merge {PLAIN}`" in plan.delayed[PLAIN]
    (status,) = read_status(case.history.settings).tables
    assert (status.merged, status.up_to_date) == (None, True)
    # By name it is, as long as its parts are there.
    assert [table.create for table in case.history.plan(PLAIN).tables] == [True]
    case.store.delete(layout.plan_key("shop", "plan-3"))
    data = {key for key in case.objects() if key.endswith(".parquet")}
    assert data == case.removed()


def test_one_that_nobody_has_seen_whole_is_made(tmp_path: Path) -> None:
    """It was dropped at the source before its first merge: what is captured is all there is."""
    case = gone(tmp_path, planned=False)
    remove(case)
    assert case.removed() == set()
    assert not read_status(case.history.settings).tables[0].up_to_date
    assert [table.create for table in case.history.plan().tables] == [True]


def test_one_that_came_back_is_made(tmp_path: Path) -> None:
    case = gone(tmp_path)
    remove(case)
    again = {"condition": TableCondition.ACTIVE, "reason": None, "since_seq": None, "generation": 1}
    case.history.commit(row(99), states={PLAIN: again})
    plan = case.history.plan()
    assert plan.delayed == {}
    assert [(table.create, table.generation) for table in plan.tables] == [(True, 1)]
    case.history.commit(states={PLAIN: GONE_STATE})
    assert [table.create for table in case.history.plan().tables] == [True]


def test_what_another_warehouse_still_has_keeps_the_parts(tmp_path: Path) -> None:
    case = gone(tmp_path)
    url = (tmp_path / "second").as_uri()
    warehouse = case.history.settings.warehouse.model_copy(update={"url": url})
    second = case.history.settings.model_copy(update={"warehouse": warehouse})
    shutil.copytree(tmp_path / "warehouse", tmp_path / "second")
    plan_merge(second, plan_id="second")
    remove(case)
    assert case.removed() == set()
    shutil.rmtree(tmp_path / "second")
    assert case.removed()


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    apply(made.history, 34, PLAIN)
    return made


def test_records_of_runs_go_when_they_are_old(case: Case) -> None:
    """Those that the objective is judged by stay, whatever the retention says."""
    settings = case.history.settings
    record_run(settings, MergeRun("p", 1_700_000_000_000_000))
    order = order_maintenance(settings, maintenance_id="nightly/1")
    case.store.put(layout.maintenance_receipt_key("shop", order.maintenance_id), b"{}")
    records = {key for key in case.objects() if "/runs/" in key or "/maintenance/" in key}
    assert len(records) == 3
    days = settings.retention.runs_days
    now = datetime.now(UTC)
    found = case.collect(now + timedelta(days=days - 0.1), dry_run=True)
    assert (found.objects[Fate.RECORD], found.objects[Fate.RECORD_OLD]) == (3, 0)
    short = settings.retention.model_copy(update={"runs_days": 1.0})
    wide = settings.slo.model_copy(update={"window_s": 30.0 * 86_400})
    case.history.settings = settings.model_copy(update={"retention": short, "slo": wide})
    assert not records & case.removed(now + timedelta(days=29.9))
    assert case.removed(now + timedelta(days=30.1)) == records


def test_plans_of_mergers_go_when_they_are_old(case: Case) -> None:
    """But not the receipt of a table's last commit, without which it would be in doubt."""
    history, settings = case.history, case.history.settings
    begun = layout.merger_id(datetime.now(UTC), "0123abcd")
    old, last = f"{begun}-1/1", f"{begun}-2/1"
    for plan_id in (old, last, "cli-1", "merger-of-ours_tideline_merge/scheduled/merge"):
        history.plan(plan_id=plan_id)
        store_receipt(settings, Receipt(plan_id, "shop", history.incarnation, ()))
    apply(history, 34, PLAIN, plan_id=last)
    mine = {layout.plan_key("shop", old), layout.receipt_key("shop", old)}
    days = settings.retention.plans_days
    now = datetime.now(UTC)
    assert not mine & case.removed(now + timedelta(days=days - 0.1))
    found = case.collect(now + timedelta(days=days + 0.1), dry_run=True)
    assert (found.objects[Fate.PLAN], found.objects[Fate.PLAN_OLD]) == (2, 2)
    removed = case.removed(now + timedelta(days=days + 0.1))
    assert {key for key in removed if "/plans/" in key or "/receipts/" in key} == mine


def test_what_is_remembered_of_plans_does_not_grow(case: Case) -> None:
    """A worker runs for months, and a merger beside it makes a plan every few seconds."""
    case.history.plan(plan_id="p")
    table = TableReceipt(PLAIN, Outcome.APPLIED, 34, 34)
    store_receipt(case.history.settings, Receipt("p", "shop", "one", (table,)))
    kept, now = Garbage(case.history.settings, case.store), datetime.now(UTC)
    kept.collect(now, dry_run=True)
    assert kept._ended == {layout.plan_key("shop", "p")}
    kept.collect(now + timedelta(days=30), dry_run=True)
    assert kept._ended == set()


def test_records_are_removed_in_pieces(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be millions, and the worker's memory is for its rows."""
    for number in range(10):
        record_run(case.history.settings, MergeRun(f"p{number}", 1_700_000_000_000_000 + number))
    seen: list[int] = []
    settle = Garbage._settle

    def counted(one: Garbage, found: Any, judged: Any, **options: Any) -> None:
        seen.append(len(judged))
        settle(one, found, judged, **options)

    monkeypatch.setattr(garbage, "_SETTLED_AT_ONCE", 4)
    monkeypatch.setattr(Garbage, "_settle", counted)
    assert len(case.removed(datetime.now(UTC) + timedelta(days=100))) >= 10
    assert seen[:3] == [4, 4, 2]
