"""Merges, end to end: parts and manifests in a store, planned, run by Spark, read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tideline.contract.receipt import Outcome, Receipt, TableReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
SCHEMA = schema_of(ORDERS, {"id": "int64", "status": "string", "note": "string"}, ["id"])


def order(
    op: str, key: int, status: str | None = None, note: str | None = None, **more: Any
) -> Row:
    return Row(ORDERS, op, {"id": key, "status": status, "note": note}, **more)


def moved(before: int, key: int, status: str, note: str | None = None, **more: Any) -> Row:
    return order("u", key, status, note, before={"id": before}, **more)


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    return made


def only(receipt: Receipt) -> TableReceipt:
    assert len(receipt.tables) == 1, receipt
    return receipt.tables[0]


def content(history: History, spark: SparkSession) -> dict[int, tuple[str | None, str | None]]:
    rows = history.rows(spark, ORDERS)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["status"], row["note"]) for row in rows}


def pending(history: History, spark: SparkSession) -> dict[int, list[str]]:
    return {
        row["id"]: row["_tl_pending"]
        for row in history.rows(spark, ORDERS)
        if row["_tl_pending"] is not None
    }


def test_an_empty_table_of_the_source_exists_in_the_warehouse(
    history: History, spark: SparkSession
) -> None:
    receipt = only(history.merge(spark))
    assert (receipt.outcome, receipt.applied_manifest) == (Outcome.APPLIED, 1)
    frame = spark.read.format("delta").load(history.target(ORDERS))
    names = ["id", "status", "note", "_tl_seq", "_tl_ts", "_tl_overflow", "_tl_pending"]
    assert frame.columns == names
    assert frame.count() == 0
    assert history.plan().tables == ()


def test_changes_are_merged_and_the_receipt_counts_them(
    history: History, spark: SparkSession
) -> None:
    history.commit(*(order("c", key, "new", f"n{key}") for key in range(1, 6)), parts_per_table=2)
    created = only(history.merge(spark))
    assert (created.inserted, created.rows_read) == (5, 5)
    history.commit(
        order("u", 1, "paid", "n1"),
        order("u", 1, "sent", "n1"),
        order("d", 2),
        order("c", 9, "new", "n9"),
        order("c", 10, "new", "n10"),
        order("d", 10),
    )
    merged = only(history.merge(spark))
    assert (merged.inserted, merged.updated, merged.deleted) == (1, 1, 1)
    assert (merged.applied_manifest, merged.applied_seq) == (3, history.last_seq)
    assert merged.rows_read == 6
    assert content(history, spark) == {
        1: ("sent", "n1"),
        3: ("new", "n3"),
        4: ("new", "n4"),
        5: ("new", "n5"),
        9: ("new", "n9"),
    }


def test_the_same_plan_twice_applies_once(history: History, spark: SparkSession) -> None:
    from spark_jobs.merge import run_plan

    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    history.merge(spark)
    history.commit(order("d", 1), order("u", 2, "paid"))
    plan = history.plan()
    first = only(run_plan(spark, plan))
    again = only(run_plan(spark, plan))
    assert (first.outcome, again.outcome) == (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    assert again.target_version == first.target_version
    assert (again.applied_manifest, again.applied_seq) == (3, history.last_seq)
    assert content(history, spark) == {2: ("paid", None)}


def test_a_plan_that_does_not_begin_where_the_target_stands_is_refused(
    history: History, spark: SparkSession
) -> None:
    from spark_jobs.merge import run_plan

    history.commit(order("c", 1, "new"))
    early = history.plan()
    history.commit(order("c", 2, "new"))
    late = history.plan()
    assert only(run_plan(spark, late)).outcome is Outcome.APPLIED
    history.commit(order("c", 3, "new"))
    skipping = history.plan()
    history.commit(order("c", 4, "new"))
    assert only(run_plan(spark, history.plan())).outcome is Outcome.APPLIED
    assert only(run_plan(spark, early)).outcome is Outcome.ALREADY_APPLIED
    assert only(run_plan(spark, skipping)).outcome is Outcome.ALREADY_APPLIED
