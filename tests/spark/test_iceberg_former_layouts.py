"""Merges into Iceberg tables that were once partitioned by a column that they no longer have: an
append log that became another mode's table, and a layout that was given up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.test_iceberg import target_of
from tests.spark.test_rebuild import Rebuilder
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.planner import begin_rebuild, next_step
from tideline.settings import Warehouse
from tideline.settings.tables import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"
COLUMNS = {"id": "int64", "area": "string", "text": "string"}


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession) -> History:
    """A table of three rows, which is not merged yet."""
    place = with_catalog(Warehouse(url=(tmp_path / "wh").as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    made = History(tmp_path, place=place)
    made.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    made.commit(*(Row(T, "c", {"id": key, "area": "n", "text": "x"}) for key in (1, 2, 3)))
    return made


def merge(history: History, spark: SparkSession) -> None:
    (one,) = history.merge(spark).tables
    assert one.outcome is Outcome.APPLIED, (one.error, one.hint)


def rebuild(history: History, spark: SparkSession, mode: Mode | None = None) -> None:
    record, rebuilder = begin_rebuild(history.settings, T, mode=mode), Rebuilder(history, spark)
    while plan := next_step(history.settings, record):
        assert not plan.delayed, plan.delayed
        assert [one.error for one in rebuilder.run(plan)] == [None]


def texts(history: History, spark: SparkSession) -> dict[int, str]:
    return {row["id"]: row["text"] for row in history.rows(spark, T)}


def choose(history: History, settings: TableSettings) -> None:
    history.settings = history.settings.model_copy(update={"tables": {T: settings}})


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.SOFT_DELETES, Mode.HISTORY])
def test_a_log_that_became_another_table_is_merged(
    history: History, spark: SparkSession, mode: Mode
) -> None:
    choose(history, TableSettings(mode=Mode.APPEND))
    merge(history, spark)
    choose(history, TableSettings(mode=mode))
    rebuild(history, spark, mode)
    for text in ("y", "z"):
        changed = {"id": 1, "area": "n", "text": text}
        history.commit(Row(T, "u", changed), Row(T, "d", {"id": 2}))
        merge(history, spark)
        found = texts(history, spark)
        assert (found[1], found[3]) == (text, "x")
    assert target_of(history, spark, T).snapshot().properties["write.merge.mode"] == "copy-on-write"


def test_a_dropped_column_that_a_former_layout_names_cannot_be_kept(
    history: History, spark: SparkSession
) -> None:
    """As it is by default; the error names the setting that lets it go, and that helps."""
    choose(history, TableSettings(partition_by=("area",)))
    merge(history, spark)
    choose(history, TableSettings())
    rebuild(history, spark)
    fewer = {name: kind for name, kind in COLUMNS.items() if name != "area"}
    history.commit(
        Shaped(schema_of(T, fewer, ["id"]), (ColumnStep(StepKind.DROP, "area"),)),
        Row(T, "u", {"id": 1, "text": "y"}),
    )
    (one,) = history.merge(spark).tables
    assert (one.outcome, one.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "'area' was dropped at the source" in str(one.error)
    assert 'dropped_columns = "drop"' in str(one.hint)
    assert texts(history, spark) == {1: "x", 2: "x", 3: "x"}
    choose(history, TableSettings(dropped_columns="drop"))
    merge(history, spark)
    assert texts(history, spark) == {1: "y", 2: "x", 3: "x"}


def test_a_column_that_a_former_layout_names_may_go(history: History, spark: SparkSession) -> None:
    choose(history, TableSettings(partition_by=("area",), dropped_columns="drop"))
    merge(history, spark)
    choose(history, TableSettings(dropped_columns="drop"))
    rebuild(history, spark)
    fewer = {name: kind for name, kind in COLUMNS.items() if name != "area"}
    history.commit(
        Shaped(schema_of(T, fewer, ["id"]), (ColumnStep(StepKind.DROP, "area"),)),
        Row(T, "u", {"id": 1, "text": "y"}),
        Row(T, "d", {"id": 2}),
    )
    merge(history, spark)
    assert texts(history, spark) == {1: "y", 3: "x"}
    more = {**fewer, "size": "int32"}
    step = ColumnStep(StepKind.ADD, "size", type="int32", default="7")
    history.commit(Shaped(schema_of(T, more, ["id"]), (step,)), Row(T, "d", {"id": 1}))
    merge(history, spark)
    assert [(row["id"], row["size"]) for row in history.rows(spark, T)] == [(3, 7)]
