"""Schema steps in a real target: names of every kind, runs that are killed between their commits,
and what others do to the columns in between."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.contract.steps import ColumnStep, StepKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = 'public."odd table.x"'
ODD = [
    "a b",
    "c.d",
    'e"f',
    "g`h",
    "select",
    "it's",
    "back\\slash",
    "🦀",
    "ü",
    "Upper",
    "%41",
    "${env:HOME}",
]
MANY = [f"column {number}" for number in range(200)]


class Killed(BaseException):
    """Stands in for the end of the process."""


def rename(was: str, name: str) -> ColumnStep:
    return ColumnStep(StepKind.RENAME, name, was=was)


def run(spark: SparkSession, plan: Plan) -> TableReceipt:
    from tideline_spark.merge import run_plan

    (receipt,) = run_plan(spark, plan).tables
    return receipt


def test_hundreds_of_columns_with_odd_names_swapped_by_runs_that_are_killed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark.formats.delta.columns import DeltaColumns
    from tideline_spark.merge import run_plan

    history = History(tmp_path)
    columns = dict.fromkeys(["k.1", *ODD, *MANY], "string")
    history.commit(Shaped(schema_of(T, columns, ["k.1"])))
    texts = {"a b": "infinity", "select": "-infinity"}
    values = {name: f"{name} 1" for name in columns if name not in texts}
    history.commit(Row(T, "c", {**values, "k.1": "1"}, overflow=texts))
    assert run(spark, history.plan()).outcome is Outcome.APPLIED

    swapped = {"a b": "c.d", "c.d": "a b", "Upper": "upper", "k.1": "key `1`"}
    steps = (
        ColumnStep(StepKind.DROP, "g`h"),
        *(rename(was, name) for was, name in swapped.items()),
        ColumnStep(StepKind.ADD, "new 'one'", type="string", default="it's \\ 1 ${env:HOME}"),
        ColumnStep(StepKind.ADD, "g`h", type="int32"),
    )
    after = {swapped.get(name, name): kind for name, kind in columns.items() if name != "g`h"}
    after |= {"new 'one'": "string", "g`h": "int32"}
    history.commit(
        Row(T, "u", {**values, "k.1": "1", "ü": "before"}, unchanged=("a b",), overflow={}),
        Row(T, "c", {"k.1": "2", "c.d": "C"}, overflow={"a b": "infinity"}),
        Shaped(schema_of(T, after, ["key `1`"]), steps),
        Row(T, "c", {"key `1`": "3", "a b": "A", "g`h": 7}),
        Row(T, "u", {"key `1`": "22"}, before={"key `1`": "2"}, unchanged=("c.d", "a b")),
    )
    plan = history.plan()

    def dies(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(DeltaColumns, "refill", dies)
        with pytest.raises(Killed):
            run_plan(spark, plan)
    with pytest.raises(Killed):
        run_plan(spark, plan, on_point=dies)
    versions = DeltaTable(_path(history)).version()
    assert run(spark, plan).outcome is Outcome.APPLIED
    assert DeltaTable(_path(history)).version() == versions + 1, "a step was taken again"

    rows = {row["key `1`"]: row for row in history.rows(spark, T)}
    assert set(rows) == {"1", "22", "3"}
    one, two, three = rows["1"], rows["22"], rows["3"]
    assert (one["a b"], one["c.d"], one["ü"], one["g`h"]) == ("c.d 1", None, "before", None)
    assert (one["upper"], one["new 'one'"]) == ("Upper 1", "it's \\ 1 ${env:HOME}")
    assert one["_tl_overflow"] == {"c.d": "infinity"}, "of the row that did not carry it"
    assert (two["a b"], two["c.d"], two["_tl_overflow"]) == ("C", None, {"c.d": "infinity"})
    assert (three["a b"], three["g`h"], three["new 'one'"]) == ("A", 7, None)
    assert all(one[name] == f"{name} 1" for name in MANY)
    assert [row["_tl_pending"] for row in rows.values()] == [None, None, None]


def test_what_others_do_to_the_columns_is_an_error_with_a_hint(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int32", "a": "string", "b": "string"}, ["id"])))
    assert run(spark, history.plan()).outcome is Outcome.APPLIED
    table = f"delta.`{history.target(T)}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN a TO theirs")
    history.commit(Row(T, "c", {"id": 1, "a": "x", "b": "y"}))
    failed = run(spark, history.plan())
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "'a'" in (failed.error or "") and "rename it back" in (failed.hint or "")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN theirs TO a")
    assert run(spark, history.plan()).outcome is Outcome.APPLIED

    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (c string)")
    added = ColumnStep(StepKind.ADD, "c", type="string")
    wider = {"id": "int32", "a": "string", "b": "string", "c": "string"}
    history.commit(Shaped(schema_of(T, wider, ["id"]), (added,)), Row(T, "c", {"id": 2, "c": "z"}))
    failed = run(spark, history.plan())
    assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "someone else has added" in (failed.error or "")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN c TO theirs")
    spark.sql(f"ALTER TABLE {table} DROP COLUMN b")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (b string)")
    receipt = run(spark, history.plan())
    assert receipt.outcome is Outcome.APPLIED
    assert [change.split(": ")[1] for change in receipt.external_changes] == [
        "DROP COLUMNS",
        "RENAME COLUMN",
    ]
    rows = [(row["id"], row["a"], row["c"], row["theirs"]) for row in history.rows(spark, T)]
    assert rows == [(1, "x", None, None), (2, None, "z", None)]
    property_ = DeltaTable(_path(history)).metadata().configuration.get(COLUMNS_PROPERTY)
    assert TargetColumns.parse(property_).seq == history.last_seq - 1

    # Whoever sets the table back has its old columns again, until a dump makes it right.
    before = DeltaTable(_path(history)).version()
    history.commit(
        Shaped(
            schema_of(T, {"id": "int32", "z": "string", "b": "string", "c": "string"}, ["id"]),
            (rename("a", "z"),),
        )
    )
    assert run(spark, history.plan()).outcome is Outcome.APPLIED
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (later string)")
    assert "a" in spark.read.format("delta").load(history.target(T)).columns
    low = history.last_seq
    history.commit(Row(T, "r", {"id": 1, "z": "x"}), deletes_before=[(T, low)])
    receipt = run(spark, history.plan())
    assert receipt.outcome is Outcome.APPLIED, receipt
    (row,) = history.rows(spark, T)
    assert {name for name in row if not name.startswith("_tl_")} == {
        *("id", "z", "b", "c", "theirs", "later")
    }
    assert row["z"] == "x"


def _path(history: History) -> str:
    return history.target(T).removeprefix("file://")
