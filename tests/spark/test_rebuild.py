# ruff: noqa: S608  statements are made of constants
"""Rebuilds: a table recreated beside the live one, which goes on being merged, and swapped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.layout import table_path
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.contract.schema import parse_table
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import applied_state, begin_rebuild, next_step
from tideline.planner.rebuild_steps import shadow_settings
from tideline.planner.runs import store_receipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
SCHEMA = schema_of(ORDERS, {"id": "int64", "status": "string", "note": "string"}, ["id"])


def order(op: str, key: int, status: str | None = None, note: str | None = None, **m: Any) -> Row:
    return Row(ORDERS, op, {"id": key, "status": status, "note": note}, **m)


class Killed(BaseException):
    pass


class Rebuilder:
    """Takes a rebuild's steps, as the command does."""

    def __init__(self, history: History, spark: SparkSession) -> None:
        self.history = history
        self.spark = spark

    def run(self, plan: Plan, *, kill_at: str | None = None) -> list[TableReceipt]:
        from tideline_spark.merge import run_plan

        def on_point(point: str) -> None:
            if point == kill_at:
                raise Killed

        return list(run_plan(self.spark, plan, on_point=on_point).tables)

    def all(self, mode: Mode | None = None, **options: Any) -> tuple[RebuildRecord, list[str]]:
        """To the end; returns the record, and what the steps answered."""
        accept = options.pop("accept_differences", False)
        record = begin_rebuild(self.history.settings, ORDERS, mode=mode, **options)
        reported: list[str] = []
        while plan := next_step(self.history.settings, record, accept_differences=accept):
            assert not plan.delayed, plan.delayed
            for one in self.run(plan):
                reported.append(one.outcome.value)
                if one.outcome is Outcome.FAILED:
                    reported.append(one.error or "")
                    return record, reported
        return record, reported

    def rows(self) -> list[dict[str, Any]]:
        """The live table, in an order of its own, without what depends on how plans were cut."""
        frame = self.spark.newSession().read.format("delta").load(self.history.target(ORDERS))
        found = [row.asDict(recursive=True) for row in frame.collect()]
        for row in found:
            row.pop("_batch_id", None)
        return sorted(found, key=lambda row: repr(sorted(row.items(), key=lambda pair: pair[0])))


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Two orders, one deleted and one moved, a truncate and a full dump; merged as ``current``."""
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new", "n1"), order("c", 2, "new", "n2"), order("c", 3, "new", "n3"))
    made.commit(Emptied(ORDERS), *(order("c", key, "new", f"n{key}") for key in range(1, 6)))
    low = made.last_seq
    made.commit(*(order("r", key, "new", f"n{key}") for key in range(1, 6)))
    made.commit(order("d", 2), deletes_before=[(ORDERS, low)])
    made.commit(
        order("u", 1, "paid", unchanged=("note",)),
        order("u", 30, "moved", before={"id": 3}, unchanged=("note",)),
    )
    return made


@pytest.mark.timeout(1_200)
def test_a_table_goes_through_every_mode_and_back(history: History, spark: SparkSession) -> None:
    rebuilder = Rebuilder(history, spark)
    history.merge(spark)
    current = rebuilder.rows()
    content: dict[Mode, list[dict[str, Any]]] = {}
    for mode in (Mode.HISTORY, Mode.APPEND, Mode.SOFT_DELETES, Mode.CURRENT):
        record, reported = rebuilder.all(mode)
        assert reported[-1] == "applied", reported
        content[mode] = rebuilder.rows()
        if mode in (Mode.HISTORY, Mode.APPEND):
            again, reported = rebuilder.all(mode)
            assert (again.build, reported[-1]) == (record.build + 1, "applied")
            assert rebuilder.rows() == content[mode], "twice gives the same"
        assert not list((history.root / "warehouse" / "~rebuild").glob("*/*/*"))
    assert content[Mode.CURRENT] == current
    found = {
        r["id"]: (r["status"], r["note"], r["_tl_deleted"]) for r in content[Mode.SOFT_DELETES]
    }
    assert found == {
        1: ("paid", "n1", False),
        2: ("new", "n2", True),
        3: ("new", "n3", True),
        4: ("new", "n4", False),
        5: ("new", "n5", False),
        30: ("moved", "n3", False),
    }
    spans = [
        (r["id"], r["_tl_valid_from_seq"], r["_tl_valid_to_seq"]) for r in content[Mode.HISTORY]
    ]
    assert sorted(spans, key=lambda span: span[:2]) == [
        (1, 2, 5), (1, 6, 17), (1, 17, None),
        (2, 3, 5), (2, 7, 16),
        (3, 4, 5), (3, 8, 18),
        (4, 9, None), (5, 10, None), (30, 18, None),
    ]  # fmt: skip
    assert sorted(row["_sequence_num"] for row in content[Mode.APPEND]) == list(range(2, 19))


@pytest.mark.timeout(1_200)
def test_killed_anywhere_raced_and_while_merges_go_on(
    history: History, spark: SparkSession
) -> None:
    rebuilder = Rebuilder(history, spark)
    settings = history.settings
    history.merge(spark)
    record = begin_rebuild(settings, ORDERS, mode=Mode.HISTORY)
    with pytest.raises(Fenced, match="under way, as history"):
        begin_rebuild(settings, ORDERS, mode=Mode.APPEND)
    assert begin_rebuild(settings, ORDERS, mode=Mode.HISTORY) == record
    for point in ("before-commit", "after-commit"):
        plan = next_step(settings, record)
        assert plan is not None
        with pytest.raises(Killed):
            rebuilder.run(plan, kill_at=point)
    # The live table moves on: what was built is brought up to it before they are compared.
    swap = next_step(settings, record)
    assert swap is not None and swap.swaps
    history.commit(order("u", 4, "late", "n4"))
    old = history.plan()
    (merged,) = rebuilder.run(old)
    assert merged.outcome is Outcome.APPLIED
    (refused,) = rebuilder.run(swap)
    assert (refused.outcome, "stands at manifest" in (refused.error or "")) == (
        Outcome.REFUSED, True
    )  # fmt: skip
    history.commit(order("u", 5, "later", "n5"))
    waiting = history.plan()
    for point in ("before-swap", "after-swap"):
        step = next_step(settings, record)
        assert step is not None
        if step.tables:
            rebuilder.run(step)
            step = next_step(settings, record)
        assert step is not None and step.swaps
        with pytest.raises(Killed):
            rebuilder.run(step, kill_at=point)
    assert next_step(settings, record) is None
    assert step is not None
    (again,) = rebuilder.run(step)
    assert again.outcome is Outcome.ALREADY_APPLIED
    # A plan for the table as it was is refused; a new one goes on in the new mode.
    (fenced,) = rebuilder.run(waiting)
    assert (fenced.outcome, "rebuilt" in (fenced.error or "")) == (Outcome.REFUSED, True)
    history.merge(spark)
    assert applied_state(settings).tables[ORDERS].up_to_date
    assert {r["id"]: r["status"] for r in rebuilder.rows() if r["_tl_current"]} == {
        1: "paid", 30: "moved", 4: "late", 5: "later"
    }  # fmt: skip


@pytest.mark.timeout(1_200)
def test_differences_are_counted_and_not_swapped(history: History, spark: SparkSession) -> None:
    rebuilder = Rebuilder(history, spark)
    history.merge(spark)
    live = f"delta.`{history.target(ORDERS)}`"
    for damage in (
        f"UPDATE {live} SET status = 'secret' WHERE id = 1",
        f"DELETE FROM {live} WHERE id = 4",
        f"INSERT INTO {live} VALUES (99, 'secret', 'x', 1, NULL, NULL, NULL)",
    ):
        spark.newSession().sql(damage)
    record = begin_rebuild(history.settings, ORDERS)
    step = next_step(history.settings, record)
    assert step is not None
    rebuilder.run(step)
    step = next_step(history.settings, record)
    assert step is not None
    (failed,) = rebuilder.run(step)
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "CorruptData")
    assert dict(failed.differences) == {"different": 1, "missing": 1, "extra": 1}
    assert len(failed.external_changes) == 3
    assert "secret" not in (failed.error or "")
    assert any(row["status"] == "secret" for row in rebuilder.rows())
    # Somebody writes between the comparison and the swap: both are compared again, and it is named.
    step = next_step(history.settings, record, accept_differences=True)
    assert step is not None

    from tideline_spark.merge import run_plan

    met: list[str] = []

    def meddle(point: str) -> None:
        met.append(point)
        if met == ["before-swap"]:
            spark.newSession().sql(f"DELETE FROM {live} WHERE id = 5")

    (swapped,) = run_plan(spark, step, on_point=meddle).tables
    assert swapped.outcome is Outcome.APPLIED
    assert dict(swapped.differences) == {"different": 1, "missing": 2, "extra": 1}
    assert len(swapped.external_changes) == 4
    assert met == ["before-swap", "before-swap", "after-swap"]
    assert {row["id"] for row in rebuilder.rows()} == {1, 30, 4, 5}


@pytest.mark.timeout(1_200)
def test_a_generation_and_a_lost_past(history: History, spark: SparkSession) -> None:
    rebuilder = Rebuilder(history, spark)
    settings = history.settings
    history.merge(spark)
    parts = sorted((history.root / "store").rglob("data/*/*.parquet"))
    oldest = parts[0]
    kept = oldest.read_bytes()
    oldest.unlink()
    record = begin_rebuild(settings, ORDERS, mode=Mode.HISTORY)
    plan = next_step(settings, record)
    assert plan is not None
    assert "--since-dump" in plan.delayed[ORDERS]
    with pytest.raises(Fenced):
        begin_rebuild(settings, ORDERS, mode=Mode.HISTORY, since_dump=True)
    _, reported = rebuilder.all(Mode.HISTORY, since_dump=True, restart=True)
    assert reported[-1] == "applied", reported
    assert min(row["_tl_valid_from_seq"] for row in rebuilder.rows()) > 9
    with pytest.raises(Fenced, match="took over"):
        next_step(settings, record)
    oldest.write_bytes(kept)
    # Killed before the source began another generation: the plan that was made is not kept to.
    record = begin_rebuild(settings, ORDERS, mode=Mode.APPEND)
    assert next_step(settings, record) is not None
    low = history.last_seq
    number = history.last_number
    history.commit(
        *(order("r", key, "new", f"n{key}") for key in (1, 2)),
        deletes_before=[(ORDERS, low)],
        states={ORDERS: {"generation": 1, "generation_seq": low, "generation_manifest": number}},
    )
    with pytest.raises(Unavailable, match="began generation 1"):
        next_step(settings, record)
    # A merge does not drop the past that the table keeps; a rebuild puts the generation there.
    past = rebuilder.rows()
    assert (history.merge(spark).tables, rebuilder.rows()) == ((), past)
    newer = begin_rebuild(settings, ORDERS, mode=Mode.APPEND)
    assert newer.build == record.build + 1
    shadow = table_path(shadow_settings(settings, newer).warehouse.url, parse_table(ORDERS))
    assert "~rebuild" in shadow
    _, reported = rebuilder.all(Mode.APPEND)
    assert reported[-1] == "applied", reported
    assert [row["_operation"] for row in rebuilder.rows()] == ["dump", "dump"]
    assert history.plan().delayed == {}
    # Who asks for what the log did not carry knows of it by the receipt of the swap.
    history.commit(order("u", 77, "paid", unchanged=("note",)))
    history.merge(spark)
    record = begin_rebuild(settings, ORDERS, mode=Mode.CURRENT)
    while plan := next_step(settings, record):
        swapped = rebuilder.run(plan)
        store_receipt(settings, Receipt(plan.plan_id, "shop", "one", tuple(swapped)))
    assert [(one.outcome, one.pending) for one in swapped] == [(Outcome.APPLIED, 1)]
    assert applied_state(settings).tables[ORDERS].pending == 1


@pytest.mark.timeout(1_200)
def test_columns_that_the_live_table_has_apart(tmp_path: Path, spark: SparkSession) -> None:
    """What it has not comes with a rebuild; what it alone keeps is not thrown away unasked."""
    ignored = {"on_change": {"add": "ignore", "drop": "ignore"}}
    history = History(tmp_path, tables={ORDERS: ignored})
    history.commit(Shaped(SCHEMA))
    rebuilder = Rebuilder(history, spark)
    history.commit(order("c", 1, "new", "kept"))
    history.merge(spark)
    after = schema_of(ORDERS, {"id": "int64", "status": "string", "place": "string"}, ["id"])
    steps = (
        ColumnStep(StepKind.DROP, "note"),
        ColumnStep(StepKind.ADD, "place", type="string", default="here"),
    )
    history.commit(Shaped(after, steps))
    history.merge(spark)
    assert rebuilder.rows()[0].keys() >= {"note"}
    low = history.last_seq
    row = Row(ORDERS, "r", {"id": 1, "status": "new", "place": "here"})
    history.commit(row, deletes_before=[(ORDERS, low)])
    history.merge(spark)
    _, reported = rebuilder.all(Mode.CURRENT)
    assert "keeps the column 'note'" in reported[-1]
    assert "keys" not in reported[-1], "a column that the live table does not have is no difference"
    _, reported = rebuilder.all(Mode.CURRENT, accept_differences=True)
    assert reported[-1] == "applied", reported
    (found,) = rebuilder.rows()
    assert (found["place"], "note" in found) == ("here", False)
