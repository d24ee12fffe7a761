"""Merges of few rows filter large Iceberg tables by their keys, and change no row by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"
KEY = {"id": "int32", "name": "string"}
NAMES = ("", "a", "it's", "back\\slash", "\\'", "line\nfeed", 'quo"te', "%_", "é🎉", "A", " a")


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> History:
    from tideline_spark.formats.iceberg import table

    monkeypatch.setattr(table, "TARGET_BYTES_MIN", 0)
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    made = History(tmp_path, place=place)
    made.commit(Shaped(schema_of(T, {**KEY, "value": "int64"}, list(KEY))))
    made.commit(*(row("c", at, name) for at in range(20) for name in NAMES))
    made.merge(spark, T)
    return made


def row(op: str, at: int, name: str, value: int = 0) -> Row:
    return Row(T, op, {"id": at, "name": name, "value": value})


def plans_of_merges(spark: SparkSession) -> list[str]:
    """The plans of all merges into Iceberg tables that this Spark has run."""
    executions = spark._jsparkSession.sharedState().statusStore().executionsList().iterator()
    found = []
    while executions.hasNext():
        plan = str(executions.next().physicalPlanDescription())
        if "WriteDelta" in plan:
            found.append(plan)
    return found


def content(history: History, spark: SparkSession) -> dict[tuple[int, str], int]:
    return {(one["id"], one["name"]): one["value"] for one in history.rows(spark, T)}


def test_rows_are_the_same_whatever_their_keys_hold(history: History, spark: SparkSession) -> None:
    wanted = content(history, spark)
    changes = [row("u", at, name, at + 1) for at in (3, 7) for name in NAMES]
    changes += [row("d", 5, name) for name in NAMES] + [row("c", 50, "it's", 9)]
    changes += [Row(T, "u", {"id": 60, "name": "a", "value": 1}, before={"id": 1, "name": "a"})]
    history.commit(*changes)
    receipt = history.merge(spark, T)
    assert receipt.tables[0].error is None
    wanted |= {(at, name): at + 1 for at in (3, 7) for name in NAMES} | {(50, "it's"): 9}
    wanted |= {(60, "a"): 1}
    for gone in [*((5, name) for name in NAMES), (1, "a")]:
        del wanted[gone]
    assert content(history, spark) == wanted


def test_the_target_is_filtered_before_it_is_shuffled(
    history: History, spark: SparkSession
) -> None:
    history.commit(row("u", 3, "it's", 1), row("c", 90, "a", 1))
    before = len(plans_of_merges(spark))
    history.merge(spark, T)
    plan = plans_of_merges(spark)[-1]
    assert len(plans_of_merges(spark)) > before
    (scanned,) = (
        line for line in plan.splitlines() if "IncebergScan(" in line or "IcebergScan(" in line
    )
    assert "id IN (3, 90)" in scanned
    assert history.merge(spark, T).tables == ()


def test_a_small_target_gets_no_list(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark.formats.iceberg import table

    monkeypatch.setattr(table, "TARGET_BYTES_MIN", 1024 * 1024 * 1024)
    history.commit(row("u", 3, "a", 1), row("c", 90, "a", 1))
    history.merge(spark, T)
    assert " IN (" not in plans_of_merges(spark)[-1].split("WriteDelta", 1)[0]


def listed(spark: SparkSession, rows: list[tuple[int, str]], **more: Any) -> str:
    """The condition of a merge of rows with these keys."""
    from tideline_spark.formats.iceberg.key_lists import with_keys_listed
    from tideline_spark.formats.statements import RowMerge

    session = spark.newSession()
    session.createDataFrame(rows, "id int, name string").createOrReplaceTempView("few")
    return with_keys_listed(session, RowMerge("few", "true", key=("id", "name"), **more)).on


def test_no_list_is_ever_cut(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from tideline_spark.formats.iceberg import key_lists

    rows = [(at, "a") for at in range(5)]
    assert listed(spark, rows).count(" IN (") == 2
    monkeypatch.setattr(key_lists, "ROWS_MAX", 4)
    assert listed(spark, rows) == "true"
    monkeypatch.setattr(key_lists, "ROWS_MAX", 5)
    monkeypatch.setattr(key_lists, "CHARACTERS_MAX", 4)
    assert listed(spark, rows) == "true AND _tl_target.`name` IN ('a')"


def test_what_deletes_rows_that_the_source_lacks_reads_the_whole_target(
    spark: SparkSession,
) -> None:
    from tideline_spark.formats.statements import RowClause

    assert listed(spark, [(1, "a")], unmatched=RowClause()) == "true"
