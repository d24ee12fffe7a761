"""What a merger's rounds do with a real chain and a real session: merges as changes come."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.finalizer import ThreadSafeFinalizer  # type: ignore[import-untyped]

from tests.fixtures.capture import poll
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.receipt import Outcome
from tideline.planner import plan_merge, read_receipt
from tideline.planner.runs import recent_runs
from tideline_console.follow.plan_runs import PlanRuns
from tideline_console.follow.rounds import Rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A, B = "public.a", "public.b"


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path, merge={"follow_interval_s": 0.05})
    for table in (A, B):
        made.commit(Shaped(schema_of(table, {"id": "int32"}, ["id"])))
        made.commit(Row(table, "c", {"id": 0}))
    return made


@contextmanager
def following(
    history: History, spark: SparkSession, on_point: Callable[[str], None] = lambda point: None
) -> Iterator[Rounds]:
    rounds = Rounds(history.settings, PlanRuns(history.settings, spark, on_point=on_point))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            rounds.run()
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rounds
    finally:
        rounds.stop()
        thread.join(120)
    assert not failed and not thread.is_alive()


def has(history: History, spark: SparkSession, table: str, count: int) -> bool:
    """Whether ``count`` rows of the table are merged."""
    log = Path(history.target(table).removeprefix("file://"), "_delta_log")
    return (log / f"{0:020d}.json").exists() and len(history.rows(spark, table)) == count


@pytest.mark.timeout(300)
def test_what_comes_is_merged_each_change_once(history: History, spark: SparkSession) -> None:
    with following(history, spark):
        for table in (A, B):
            poll("it is built", partial(has, history, spark, table, 1))
        for number in (1, 2):
            history.commit(Row(A, "c", {"id": number}), Row(B, "c", {"id": number}))
            for table in (A, B):
                poll("it is merged", partial(has, history, spark, table, number + 1))
    runs, _ = recent_runs(history.settings, 0, 100)
    tables = [one for run in runs for one in run.tables]
    assert {one.outcome for one in tables} == {Outcome.APPLIED.value}
    assert sum(one.rows for one in tables) == 6


@pytest.mark.timeout(300)
def test_a_slow_table_holds_up_no_other(history: History, spark: SparkSession) -> None:
    """The first one to come to its commit stays there."""
    first, go_on = threading.Lock(), threading.Event()

    def on_point(point: str) -> None:
        if first.acquire(blocking=False):
            go_on.wait(240)

    with following(history, spark, on_point):
        poll("one is merged", lambda: has(history, spark, A, 1) or has(history, spark, B, 1))
        quick = A if has(history, spark, A, 1) else B
        slow = B if quick == A else A
        for number in (1, 2):
            history.commit(Row(A, "c", {"id": number}), Row(B, "c", {"id": number}))
            poll("it goes on", partial(has, history, spark, quick, number + 1))
        assert not has(history, spark, slow, 1)
        go_on.set()
        poll("the slow one, too", lambda: has(history, spark, slow, 3))


@pytest.mark.timeout(300)
def test_a_table_that_fails_is_named_and_stops_no_other(
    history: History, spark: SparkSession
) -> None:
    part = next(p for p in history.plan(A).tables[0].parts)
    path = history.part_path(part.key)
    kept = path.read_bytes()
    path.unlink()
    with following(history, spark) as rounds:
        poll("the other is merged", lambda: has(history, spark, B, 1))
        poll("it is named", lambda: "part is missing" in rounds.beat().failing.get(A, ""))
        history.commit(Row(B, "c", {"id": 1}))
        poll("the other goes on", lambda: has(history, spark, B, 2))
        path.write_bytes(kept)
        poll("it is merged, too", lambda: has(history, spark, A, 1))
        poll("it is not named", lambda: rounds.beat().failing == {})


@pytest.mark.timeout(300)
def test_a_plan_that_is_asked_for_gets_its_receipt(history: History, spark: SparkSession) -> None:
    settings = history.settings
    plan = plan_merge(settings, plan_id="asked")
    with following(history, spark) as rounds:
        rounds.ask("asked")
        rounds.ask("no such plan")
        poll("the receipt", lambda: read_receipt(settings, plan.plan_id) is not None)
        receipt = read_receipt(settings, plan.plan_id)
        assert receipt is not None
        assert {one.outcome for one in receipt.tables} <= {
            Outcome.APPLIED,
            Outcome.ALREADY_APPLIED,
        }
        poll("it is over", lambda: "asked" in rounds.beat().ended)
        rounds.ask("asked")
        poll("it is not run again", lambda: "asked" in rounds.beat().ended)
        assert read_receipt(settings, plan.plan_id) == receipt
        poll("all is merged", lambda: has(history, spark, A, 1) and has(history, spark, B, 1))


@pytest.mark.timeout(300)
def test_merges_leave_nothing_behind(history: History, spark: SparkSession) -> None:
    """Neither references that Python has into Java, nor listeners, nor data that is kept."""
    left = []
    for number in range(3, 7):
        history.commit(Row(A, "c", {"id": number}))
        assert history.merge(spark, A).tables[0].outcome is Outcome.APPLIED
        left.append(leftovers(spark))
    first, *_, last = left[1:]
    assert last["references"] <= first["references"] + REFERENCES_TOLERATED
    assert last["listeners"] <= first["listeners"] + LISTENERS_TOLERATED
    assert last["kept data"] <= first["kept data"]


REFERENCES_TOLERATED, LISTENERS_TOLERATED = 10, 1
"""Less than one merge makes: 500 references, and two listeners."""


def leftovers(spark: SparkSession) -> dict[str, int]:
    """What is left of sessions that are no more, once both sides have collected their garbage."""
    gc.collect()
    context, runtime = spark.sparkContext, spark._jvm.java.lang.System  # type: ignore[union-attr]
    found: list[int] = []
    for _ in range(20):  # Java clears references to what it collected in a thread of its own.
        runtime.gc()
        found.append(context._jsc.sc().listenerBus().listeners().size())
    return {
        "references": len(ThreadSafeFinalizer.finalizers),
        "listeners": min(found),
        "kept data": context._jsc.sc().getPersistentRDDs().size(),
    }
