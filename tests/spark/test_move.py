# ruff: noqa: S608  statements are made of constants
"""Moves between table formats: each mode in both directions, killed, raced, with merges between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.parts import Row, Shaped, schema_of
from tests.spark.moving import (
    BY_BIGQUERY,
    DIRECTIONS,
    Mover,
    T,
    answered,
    comments_at,
    dicts_at,
    eventful,
    history_by_bigquery,
    history_in,
    history_of_formats,
    in_the_long_run,
    keeps,
    properties_at,
    row,
    rows_at,
    types_at,
    url_of,
)
from tideline.contract.errors import Misconfigured
from tideline.contract.manifest import Copied, DeleteBefore
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.target_url import table_format_of
from tideline.planner import applied_state, next_step
from tideline.planner.table_status import TableStage
from tideline.warehouse.state import read_target
from tideline_console.delete_former import run as delete_former

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE_COPY, AFTER_COPY = "before-copy", "after-copy"
BEFORE_MOVE, AFTER_MOVE = "before-move", "after-move"
KEYLESS = schema_of(T, {"a": "string"}, [])


def run_plan_of(
    spark: SparkSession, plan: Plan, on_point: Callable[[str], None] = lambda point: None
) -> list[TableReceipt]:
    from tideline_spark.merge import run_plan

    return list(run_plan(spark, plan, on_point=on_point).tables)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("held", "to"), DIRECTIONS)
def test_a_table_moves_with_all_that_it_holds(
    tmp_path: Path, spark: SparkSession, held: str, to: str, mode: Mode
) -> None:
    """And goes on in its new place as one that never moved."""
    history = history_in(tmp_path / "moved", spark, held, keeps(mode))
    eventful(history, spark)
    former, before = url_of(history), rows_at(spark, url_of(history))
    receipts = Mover(history, spark, to).all()
    assert [(one.outcome, one.error) for one in receipts] == [(Outcome.APPLIED, None)] * 2
    new = url_of(history)
    assert (table_format_of(former), table_format_of(new)) == (held, to)
    assert rows_at(spark, new) == before
    assert rows_at(spark, former) == before, "the old table stays"
    assert properties_at(spark, former)["tideline.moved_to"] == new
    assert "tideline.moving" not in properties_at(spark, new)
    status = applied_state(history.settings).tables[T]
    assert (status.format, status.format_wanted, status.former, status.mode, status.up_to_date) == (
        to, held, former, mode, True
    )  # fmt: skip
    history.commit(row("u", 4, "late", "n4"), row("d", 5), row("c", 6, "new", "n6"))
    assert answered(history.merge(spark)) == [("applied", None)]
    assert rows_at(spark, former) == before, "nothing is merged into it"
    moved = rows_at(spark, new)
    unmoved = history_in(tmp_path / "unmoved", spark, held, keeps(mode))
    eventful(unmoved, spark)
    unmoved.commit(row("u", 4, "late", "n4"), row("d", 5), row("c", 6, "new", "n6"))
    unmoved.merge(spark)
    assert rows_at(spark, unmoved.target(T)) == moved


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("held", "to"), [*DIRECTIONS, *in_the_long_run(BY_BIGQUERY, but=1)])
def test_killed_at_every_point_with_merges_between(
    tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession, held: str, to: str
) -> None:
    """The old table is merged until the new one takes over, and the new one from then on."""
    history = history_of_formats(tmp_path, request, held, to, keeps(Mode.HISTORY))
    eventful(history, spark)
    mover, former = Mover(history, spark, to), url_of(history)
    record = mover.begin()
    for number, point in enumerate((BEFORE_COPY, AFTER_COPY), 10):
        step = mover.step(record)
        assert [one.copy for one in step.moves] == [True]
        mover.killed(step, point)
        assert url_of(history) == former
        history.commit(row("c", number, "new", "between"))
        assert answered(history.merge(spark)) == [("applied", None)]
    assert mover.begin() == record, "the same command goes on"
    assert mover.run(step).outcome is Outcome.ALREADY_APPLIED
    (following,) = mover.step(record).tables
    assert following.target == record.target
    mover.killed(mover.step(record), "before-commit")
    assert mover.run(mover.step(record)).outcome is Outcome.APPLIED
    waiting = mover.step(record)
    assert [one.copy for one in waiting.moves] == [False]
    mover.killed(waiting, BEFORE_MOVE)
    assert url_of(history) == former
    history.commit(row("c", 12, "new", "later"))
    assert answered(history.merge(spark)) == [("applied", None)]
    refused = mover.run(waiting)
    assert (refused.outcome, "stands at manifest" in (refused.error or "")) == (
        Outcome.REFUSED, True
    )  # fmt: skip
    assert mover.run(mover.step(record)).outcome is Outcome.APPLIED
    history.commit(row("c", 13, "new", "after"))
    for_the_old = history.plan()
    last = mover.step(record)
    mover.killed(last, AFTER_MOVE)
    assert url_of(history) == record.target, "the one commit that decides is made"
    before = rows_at(spark, former)
    (fenced,) = run_plan_of(spark, for_the_old)
    assert (fenced.outcome, f"was moved to {record.target}" in (fenced.error or "")) == (
        Outcome.REFUSED, True
    )  # fmt: skip
    assert answered(history.merge(spark)) == [("applied", None)]
    assert rows_at(spark, former) == before
    assert "tideline.moving" in properties_at(spark, record.target)
    with pytest.raises(Misconfigured, match="lacks its last step"):
        delete_former(history.settings, T, yes=True)
    assert mover.begin() == record
    assert mover.run(mover.step(record)).outcome is Outcome.ALREADY_APPLIED
    assert next_step(history.settings, record) is None
    assert "tideline.moving" not in properties_at(spark, record.target)
    assert mover.run(last).outcome is Outcome.ALREADY_APPLIED
    keys = {one["id"] for one in dicts_at(spark, record.target)}
    assert keys >= {10, 11, 12, 13}
    assert applied_state(history.settings).tables[T].up_to_date
    assert rows_at(spark, record.target) == undisturbed(tmp_path / "other", spark, (10, 14))


def undisturbed(root: Path, spark: SparkSession, keys: tuple[int, int]) -> list[str]:
    """The rows of the same table, of Delta's, that was never moved, with ``keys`` inserted one
    after another."""
    history = history_in(root, spark, "delta", keeps(Mode.HISTORY))
    eventful(history, spark)
    for number, status in zip(range(*keys), ("between", "between", "later", "after"), strict=True):
        history.commit(row("c", number, "new", status))
    history.merge(spark)
    return rows_at(spark, url_of(history))


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("held", "to"), [*DIRECTIONS, *in_the_long_run(BY_BIGQUERY)])
def test_two_runs_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession, held: str, to: str
) -> None:
    """Both copy, and both have the copy take over, each when neither has committed."""
    history = history_of_formats(tmp_path, request, held, to, keeps(Mode.APPEND))
    eventful(history, spark)
    before, mover = rows_at(spark, url_of(history)), Mover(history, spark, to)
    record = mover.begin()
    assert Mover(history, spark, to).begin() == record
    for point in (BEFORE_COPY, BEFORE_MOVE):
        step, gate, met = mover.step(record), threading.Barrier(2, timeout=300), threading.local()

        def meet(
            reached: str,
            point: str = point,
            gate: threading.Barrier = gate,
            met: threading.local = met,
        ) -> None:
            if reached == point and not hasattr(met, "once"):
                met.once = True
                gate.wait()

        with ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(mover.run, step, meet) for _ in range(2)]
            receipts = [one.result() for one in runs]
        assert {one.outcome for one in receipts} <= {Outcome.APPLIED, Outcome.ALREADY_APPLIED}, [
            one.error for one in receipts
        ]
    assert next_step(history.settings, record) is None
    assert url_of(history) == record.target
    assert rows_at(spark, record.target) == before


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("held", "to"), [*DIRECTIONS, *in_the_long_run(BY_BIGQUERY)])
def test_a_merge_under_way_does_not_end_in_the_old_table(
    tmp_path: Path, request: pytest.FixtureRequest, spark: SparkSession, held: str, to: str
) -> None:
    """It began before the new table took over, and commits afterwards."""
    history = history_of_formats(tmp_path, request, held, to, {})
    eventful(history, spark)
    mover, former = Mover(history, spark, to), url_of(history)
    record = mover.begin()
    mover.run(mover.step(record))
    last = mover.step(record)
    history.commit(row("c", 6, "new", "n6"))
    slow, before = history.plan(), rows_at(spark, former)
    met: list[str] = []

    def overtaken(point: str) -> None:
        met.append(point)
        if met == ["before-commit"]:
            assert mover.run(last).outcome is Outcome.APPLIED

    (late,) = run_plan_of(spark, slow, overtaken)
    assert (late.outcome, "was moved to" in (late.error or "")) == (Outcome.REFUSED, True)
    assert rows_at(spark, former) == before
    assert answered(history.merge(spark)) == [("applied", None)]
    assert 6 in {one["id"] for one in dicts_at(spark, record.target)}


@pytest.mark.timeout(1_200)
def test_a_staged_merge_is_not_published_in_the_old_table(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new table takes over while the statement of a merge runs: no snapshot of Iceberg's shows
    that."""
    from tideline_spark.formats.iceberg.publishing import Publication

    history = history_in(tmp_path, spark, "iceberg", {})
    eventful(history, spark)
    mover, former = Mover(history, spark, "delta"), url_of(history)
    record = mover.begin()
    mover.run(mover.step(record))
    last, before = mover.step(record), rows_at(spark, former)
    history.commit(row("c", 6, "new", "n6"))
    met, publish = list[Outcome](), Publication.publish

    def late(publication: Publication) -> int | None:
        if not met:
            met.append(mover.run(last).outcome)
        return publish(publication)

    monkeypatch.setattr(Publication, "publish", late)
    (receipt,) = run_plan_of(spark, history.plan())
    assert met == [Outcome.APPLIED]
    assert (receipt.outcome, "was moved to" in (receipt.error or "")) == (Outcome.REFUSED, True)
    assert rows_at(spark, former) == before
    assert answered(history.merge(spark)) == [("applied", None)]
    assert 6 in {one["id"] for one in dicts_at(spark, record.target)}


def _one_less(rows: DataFrame) -> DataFrame:
    return rows.where("id <> 4")


def _one_twice(rows: DataFrame) -> DataFrame:
    return rows.unionByName(rows.where("id = 4"))


def _one_value(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("* EXCEPT (price)", "IF(id = 5, -price, price) AS price")


def _of_tideline(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("* EXCEPT (_tl_seq)", "IF(id = 5, _tl_seq - 1, _tl_seq) AS _tl_seq")


def _no_overflow(rows: DataFrame) -> DataFrame:
    return rows.selectExpr(
        "* EXCEPT (_tl_overflow)", "IF(id = 4, NULL, _tl_overflow) AS _tl_overflow"
    )


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("mutant", "found"),
    [
        (_one_less, {"rows missing": 1}),
        (_one_twice, {"rows extra": 1}),
        (_one_value, {"rows missing": 1, "rows extra": 1}),
        (_of_tideline, {"rows missing": 1, "rows extra": 1}),
        (_no_overflow, {"rows missing": 1, "rows extra": 1}),
        (lambda rows: rows.drop("note"), {"columns different": 1}),
    ],
    ids=["missing", "twice", "value", "sequence", "overflow", "column"],
)
def test_a_copy_made_wrongly_does_not_take_over(
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[DataFrame], DataFrame],
    found: dict[str, int],
) -> None:
    """The comparison finds what the code that copies does wrong."""
    from tideline_spark.table_copy import copied_rows

    history = history_in(tmp_path, spark, "delta", {})
    eventful(history, spark)
    former = url_of(history)
    monkeypatch.setattr(
        "tideline_spark.move.copied_rows", lambda *given: mutant(copied_rows(*given))
    )
    copied, failed = Mover(history, spark, "iceberg").all()
    assert copied.outcome is Outcome.APPLIED
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "CorruptData")
    assert dict(failed.differences) == found
    assert url_of(history) == former
    assert "tideline.moved_to" not in properties_at(spark, former)
    history.commit(row("c", 6, "new", "n6"))
    assert answered(history.merge(spark)) == [("applied", None)]
    assert 6 in {one["id"] for one in dicts_at(spark, former)}, "the old table goes on"


@pytest.mark.timeout(1_200)
def test_a_copy_that_differs_does_not_take_over(tmp_path: Path, spark: SparkSession) -> None:
    history = history_in(tmp_path, spark, "delta", {})
    eventful(history, spark)
    mover, former = Mover(history, spark, "iceberg"), url_of(history)
    record = mover.begin()
    mover.run(mover.step(record))
    session = spark.newSession()
    session.sql("UPDATE tideline.public.orders SET note = 'secret' WHERE id = 4")
    session.sql("DELETE FROM tideline.public.orders WHERE id = 5")
    failed = mover.run(mover.step(record))
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "CorruptData")
    assert dict(failed.differences) == {"rows missing": 2, "rows extra": 1}
    assert "secret" not in (failed.error or "")
    assert url_of(history) == former
    with pytest.raises(Misconfigured, match="a move given up has left"):
        mover.begin(restart=True)
    assert delete_former(history.settings, T, yes=False) == 0
    assert properties_at(spark, record.target)
    assert delete_former(history.settings, T, yes=True) == 0
    receipts = mover.all(restart=True)
    assert [one.outcome for one in receipts] == [Outcome.APPLIED] * 2
    assert rows_at(spark, url_of(history)) == rows_at(spark, former)


@pytest.mark.timeout(1_200)
def test_what_others_changed_moves_along_and_stays_known(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = history_in(tmp_path, spark, "delta", {})
    eventful(history, spark)
    mover, former = Mover(history, spark, "iceberg"), url_of(history)
    spark.newSession().sql(f"UPDATE delta.`{former}` SET status = 'odd' WHERE id = 4")
    assert applied_state(history.settings).tables[T].state is TableStage.NEEDS_RESNAPSHOT
    copied, pointed = mover.all()
    assert [one.outcome for one in (copied, pointed)] == [Outcome.APPLIED] * 2
    assert len(copied.external_changes) == 1
    status = applied_state(history.settings).tables[T]
    assert (status.format, status.state) == ("iceberg", TableStage.NEEDS_RESNAPSHOT)
    assert rows_at(spark, url_of(history)) == rows_at(spark, former)


@pytest.mark.timeout(1_200)
def test_there_and_back_and_a_former_table_is_removed_by_name_alone(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Also: small numbers are small again, comments come along, and no other table is touched."""
    history = history_in(tmp_path, spark, "delta", {})
    eventful(history, spark)
    former, before = url_of(history), rows_at(spark, url_of(history))
    spark.newSession().sql(f"ALTER TABLE delta.`{former}` ALTER COLUMN note COMMENT 'by hand'")
    there = Mover(history, spark, "iceberg")
    there.all()
    new = url_of(history)
    assert comments_at(spark, new)["note"] == "by hand"
    back = Mover(history, spark, "delta")
    with pytest.raises(Misconfigured, match="what it was before it was moved lies there"):
        back.begin()
    assert delete_former(history.settings, T, yes=True) == 0
    assert not list((history.root / "warehouse" / "public").glob("*"))
    assert rows_at(spark, new) == before
    assert [one.outcome for one in back.all()] == [Outcome.APPLIED] * 2
    assert (url_of(history), rows_at(spark, former)) == (former, before)
    types = {name: kind for name, kind in types_at(spark, former) if name in ("id", "small")}
    assert types == {"id": "bigint", "small": "smallint"}
    assert delete_former(history.settings, T, yes=True) == 0
    assert (url_of(history), rows_at(spark, former)) == (former, before)
    history.commit(row("c", 6, "new", "n6"))
    assert answered(history.merge(spark)) == [("applied", None)]


@pytest.mark.timeout(1_200)
def test_a_table_without_a_key(tmp_path: Path, spark: SparkSession) -> None:
    """Equal rows are as many as they were."""
    history = history_in(tmp_path, spark, "delta", {"keyless": "counted"})
    history.commit(Shaped(KEYLESS))
    low = history.last_seq
    rows = [Row(T, "r", {"a": one}) for one in ("x", "x", None)]
    copied = Copied(history.last_number, low + len(rows), len(rows))
    history.commit(*rows, deletes_before=[DeleteBefore(T, low, "dump", copied)])
    assert answered(history.merge(spark)) == [("applied", None)]
    former = url_of(history)
    assert [one.outcome for one in Mover(history, spark, "iceberg").all()] == [Outcome.APPLIED] * 2
    assert len(rows_at(spark, former)) == 3
    assert rows_at(spark, url_of(history)) == rows_at(spark, former)
    history.commit(Row(T, "c", {"a": "x"}))
    assert answered(history.merge(spark)) == [("applied", None)]
    assert [one["a"] for one in dicts_at(spark, url_of(history))].count("x") == 3


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("held", "to", "mode"),
    [
        pytest.param(*way, mode, marks=() if mode is Mode.CURRENT else pytest.mark.long)
        for way in BY_BIGQUERY
        for mode in Mode
    ],
)
def test_to_bigquery_and_from_it(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    held: str,
    to: str,
    mode: Mode,
) -> None:
    """Before its emulator; the copy follows a merge that came meanwhile."""
    history = history_by_bigquery(tmp_path, request, held, keeps(mode))
    eventful(history, spark)
    former, mover = url_of(history), Mover(history, spark, to)
    record = mover.begin()
    assert mover.run(mover.step(record)).outcome is Outcome.APPLIED
    history.commit(row("c", 6, "new", "n6"), row("d", 5))
    assert answered(history.merge(spark)) == [("applied", None)]
    before = rows_at(spark, former)
    receipts = mover.all()
    assert [(one.outcome, one.error) for one in receipts] == [(Outcome.APPLIED, None)] * 2
    new = url_of(history)
    assert (table_format_of(former), table_format_of(new)) == (held, to)
    assert (rows_at(spark, new), rows_at(spark, former)) == (before, before)
    history.commit(row("c", 7, "new", "n7"))
    assert answered(history.merge(spark)) == [("applied", None)]
    assert 7 in {one["id"] for one in dicts_at(spark, new)}
    assert rows_at(spark, former) == before, "nothing is merged into it"
    moved = rows_at(spark, new)
    assert delete_former(history.settings, T, yes=True) == 0
    assert read_target(former, "", history.settings.warehouse_storage).exists is False
    assert (url_of(history), rows_at(spark, new)) == (new, moved)
