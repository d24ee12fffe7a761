# ruff: noqa: S608  statements are made of constants
"""Targets that others have changed, set back or damaged: named, and healed by dumps."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import History
from tests.fixtures.progress import external_of
from tests.spark.orders import (
    ORDERS,
    applied,
    content,
    only,
    order,
    run,
    table,
    touched,
)
from tideline.contract.receipt import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_changes_by_others_are_named_whenever_they_come_and_whatever_the_log_forgets(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes between the look at the target and the commit would be looked for by nobody."""
    from tideline.planner import applied_state
    from tideline_spark import table_run
    from tideline_spark.formats.delta.table import DeltaTarget
    from tideline_spark.merge import run_plan

    by_hand = f"UPDATE {table(history)} SET note = 'by hand' WHERE id = 1"
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    history.commit(order("c", 2, "new"), touched(3, "whose note nobody knows"))
    met: list[str] = []

    def meddle(point: str) -> None:
        met.append(point)
        if met == ["before-commit"]:
            spark.newSession().sql(by_hand)

    receipt = only(run_plan(spark, history.plan(), on_point=meddle))
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ("version 1: UPDATE",))
    assert met == ["before-commit", "before-commit", "after-commit"]
    assert receipt.pending == 1
    assert external_of(applied_state(history.settings).tables[ORDERS]) == ("version 1: UPDATE",)

    # Behind the last look, right before the statement reads the table.
    statement = DeltaTarget.merge

    def late(self: Any, *given: Any, **more: Any) -> Any:
        monkeypatch.setattr(DeltaTarget, "merge", statement)
        spark.newSession().sql(by_hand)
        return statement(self, *given, **more)

    def killed(*given: Any) -> None:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(DeltaTarget, "merge", late)
    monkeypatch.setattr(table_run, "note", killed)
    history.commit(order("c", 4, "new"))
    receipt = run(spark, history.plan())
    named = ("version 1: UPDATE", "version 4: UPDATE")
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, named[1:])
    assert receipt.complete_through_us is None
    assert external_of(applied_state(history.settings).tables[ORDERS]) == named
    monkeypatch.undo()
    history.commit(order("c", 5, "new"))
    assert run(spark, history.plan()).external_changes == named[1:]

    # Nothing was merged for a month, and someone sets a property now and then.
    forget(spark, history)
    assert external_of(applied_state(history.settings).tables[ORDERS]) == named
    history.commit(order("c", 6, "new"))
    receipt = run(spark, history.plan())
    assert (receipt.complete_through_us, receipt.pending, receipt.warnings) == (None, 1, ())
    assert external_of(applied_state(history.settings).tables[ORDERS]) == named

    low = history.last_seq
    history.commit(
        *(order("r", key, "new", "read") for key in range(1, 7)), deletes_before=[(ORDERS, low)]
    )
    receipt = run(spark, history.plan())
    assert (receipt.pending, receipt.complete_through_us is None) == (0, False)
    forget(spark, history)
    assert external_of(applied_state(history.settings).tables[ORDERS]) == ()

    history.commit(order("c", 7, "new"))
    run(spark, history.plan())
    forget(spark, history, maintained=False)
    plan = history.plan()
    assert plan.strayed == (ORDERS,)
    assert "no longer shows" in plan.delayed[ORDERS]


def forget(spark: SparkSession, history: History, *, maintained: bool = True) -> None:
    """Leave of the log what Delta does when all but a commit that is not ours are old; `tideline
    maintain` has run while they were a week old."""
    from tideline_spark.formats.registry import open_target
    from tideline_spark.maintain import remember

    log = Path(history.target(ORDERS).removeprefix("file://"), "_delta_log")
    for file in log.glob("*.json"):
        os.utime(file, (0, 0))
    if maintained:
        target = open_target(spark.newSession(), history.target(ORDERS))
        remember(target, target.look(), history.incarnation, now_us=time.time_ns() // 1_000)
    every = "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    spark.newSession().sql(every.format(table(history)))
    path = history.target(ORDERS).removeprefix("file://")
    *old, _ = sorted(Path(path, "_delta_log").glob("*.json"))
    for file in old:
        file.unlink()


def test_a_full_dump_heals_every_kind_of_damage(history: History, spark: SparkSession) -> None:
    history.commit(*(order("c", key, "new", f"n{key}") for key in range(1, 7)))
    applied(history, spark)
    target = table(history)
    far = "9000000000000000000"
    for damage in (
        f"UPDATE {target} SET status = 'wrong' WHERE id = 1",
        f"UPDATE {target} SET status = 'wrong', _tl_seq = {far} WHERE id = 2",
        f"UPDATE {target} SET _tl_seq = NULL, note = NULL WHERE id = 3",
        f"DELETE FROM {target} WHERE id = 4",
        f"INSERT INTO {target} VALUES (77, 'extra', 'x', 1, NULL, NULL, NULL),"
        f" (78, 'extra', 'x', {far}, NULL, NULL, NULL), (79, 'extra', 'x', NULL, NULL, NULL, NULL),"
        " (NULL, 'extra', 'x', 1, NULL, NULL, NULL), (5, 'new', 'n5', 5, NULL, NULL, NULL)",
    ):
        spark.newSession().sql(damage)
    low = history.last_seq
    dump = [order("r", key, "new", f"n{key}") for key in range(1, 7)]
    history.commit(*dump, deletes_before=[(ORDERS, low)])
    receipt = applied(history, spark)
    assert len(receipt.external_changes) == 5
    assert "DELETE" in " ".join(receipt.external_changes)
    assert content(history, spark) == {key: ("new", f"n{key}") for key in range(1, 7)}
    # Healed by a dump that began after the damage: nothing is said of it any more.
    history.commit(order("u", 1, "paid", "n1"))
    assert applied(history, spark).external_changes == ()


def test_a_keys_dump_heals_damaged_rows(history: History, spark: SparkSession) -> None:
    history.commit(*(order("c", key, "new") for key in range(1, 5)))
    applied(history, spark)
    target = table(history)
    spark.newSession().sql(f"UPDATE {target} SET status = 'bad', _tl_seq = 900 WHERE id < 3")
    spark.newSession().sql(f"INSERT INTO {target} VALUES (8, 'x', 'x', 900, NULL, NULL, NULL)")
    spark.newSession().sql(f"INSERT INTO {target} VALUES (3, 'x', 'x', 900, NULL, NULL, NULL)")
    history.commit(order("r", 1, "new"), order("r", 2, "new"), order("d", 8), order("r", 3, "new"))
    receipt = applied(history, spark)
    assert len(receipt.external_changes) == 3
    assert content(history, spark) == dict.fromkeys(range(1, 5), ("new", None))


def dump_merged(history: History, spark: SparkSession) -> None:
    """A full dump of three rows, in the warehouse."""
    low = history.last_seq
    dump = [order("r", key, "new") for key in (1, 2, 3)]
    history.commit(*dump, deletes_before=[(ORDERS, low)])
    applied(history, spark)


def test_changes_by_others_stay_said_until_a_full_dump(
    history: History, spark: SparkSession
) -> None:
    from tideline.planner import applied_state

    history.commit(order("c", 1, "new"))
    applied(history, spark)
    target = table(history)
    spark.newSession().sql(f"UPDATE {target} SET note = 'by hand'")
    spark.newSession().sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('team' = 'someone')")
    history.commit(order("c", 2, "new"))
    assert applied(history, spark).external_changes == ("version 1: UPDATE",)
    history.commit(order("c", 3, "new"))
    assert applied(history, spark).external_changes == ()
    assert external_of(applied_state(history.settings).tables[ORDERS]) == ("version 1: UPDATE",)
    dump_merged(history, spark)
    assert external_of(applied_state(history.settings).tables[ORDERS]) == ()
    assert content(history, spark) == dict.fromkeys((1, 2, 3), ("new", None))


def test_a_restored_target_is_held_until_a_full_dump(history: History, spark: SparkSession) -> None:
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    history.commit(order("c", 2, "new"))
    applied(history, spark)
    history.commit(order("c", 3, "new"))
    made_before = history.plan()
    spark.newSession().sql(f"RESTORE TABLE delta.`{history.target(ORDERS)}` TO VERSION AS OF 0")
    failed = run(spark, made_before)
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "CorruptData")
    held = history.plan()
    assert held.tables == ()
    assert "RESTORE" in held.delayed[ORDERS]
    dump_merged(history, spark)
    assert content(history, spark) == dict.fromkeys((1, 2, 3), ("new", None))


def test_a_restore_that_undoes_what_others_did_is_only_named(
    history: History, spark: SparkSession
) -> None:
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    target = table(history)
    spark.newSession().sql(f"DELETE FROM {target}")
    spark.newSession().sql(f"RESTORE TABLE {target} TO VERSION AS OF 0")
    history.commit(order("c", 2, "new"))
    receipt = applied(history, spark)
    assert receipt.external_changes == ("version 2: RESTORE", "version 1: DELETE")
    assert content(history, spark) == {1: ("new", None), 2: ("new", None)}


def test_a_foreign_table_at_the_target_is_left_alone(history: History, spark: SparkSession) -> None:
    history.commit(order("c", 1, "new"))
    plan = history.plan()
    target = history.target(ORDERS)
    spark.newSession().range(3).write.format("delta").save(target)
    receipt = run(spark, plan)
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert spark.newSession().read.format("delta").load(target).count() == 3
