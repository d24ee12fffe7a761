"""Tables for named readers: what one misreads is not switched on. Proven by deltalake, which
refuses deletion vectors and widened types, and shows NULL in columns that were renamed; and what
DuckDB and Polars make of each feature."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.integration.test_first_day import installed_readers
from tests.spark.test_layouts import HOSTILE
from tests.spark.test_rebuild import ORDERS, Rebuilder
from tideline.contract.modes import Mode
from tideline.contract.readers import READERS, Feature
from tideline.contract.receipt import Outcome
from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings.tables import TableSettings
from tideline_console.status import read_status
from tideline_console.status import run as show_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(ORDERS, {"id": "int64", "n": "int32"}, ["id"])
WIDE = schema_of(ORDERS, {"id": "int64", "n": "int64"}, ["id"])
RENAMED = schema_of(ORDERS, {"id": "int64", "m": "int64"}, ["id"])
WIDEN = ColumnStep(StepKind.WIDEN, "n", type="int64")
RENAME = ColumnStep(StepKind.RENAME, "m", was="n")


def order(op: str, key: int, n: int | None = None, name: str = "n") -> Row:
    return Row(ORDERS, op, {"id": key, name: n})


def choose(history: History, **settings: Any) -> None:
    entry = TableSettings(**settings)
    history.settings = history.settings.model_copy(update={"tables": {"*.*": entry}})


def by_deltalake(history: History, *names: str) -> list[tuple[Any, ...]]:
    path = history.target(ORDERS).removeprefix("file://")
    found = DeltaTable(path).to_pyarrow_table().select(list(names)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def by_spark(history: History, spark: SparkSession, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[n] for n in names) for row in history.rows(spark, ORDERS))


def started(root: Path, spark: SparkSession, **settings: Any) -> History:
    history = History(root)
    choose(history, **settings)
    history.commit(Shaped(SCHEMA), *(order("c", key, key) for key in range(9)))
    history.merge(spark)
    history.commit(order("u", 1, 11), order("d", 2))
    history.merge(spark)
    return history


def blocked_by(history: History, step: str) -> None:
    plan = history.plan()
    assert not plan.tables
    assert step in plan.delayed[ORDERS] and "delta-rs cannot read" in plan.delayed[ORDERS]
    (status,) = read_status(history.settings).tables
    assert status.state.value == "schema-blocked"


def changed(history: History, schema: TableSchema, step: ColumnStep, row: Row) -> None:
    history.commit(Shaped(schema, (step,)))
    history.commit(row)


def test_what_a_reader_lacks_is_never_switched_on(tmp_path: Path, spark: SparkSession) -> None:
    history = started(tmp_path, spark, readers=["delta-rs", "duckdb"])
    assert by_deltalake(history, "id", "n") == by_spark(history, spark, "id", "n")
    changed(history, WIDE, WIDEN, order("c", 20, 2**40))
    blocked_by(history, "'n' was widened to int64")
    features = {*(DeltaTable(history.target(ORDERS)).protocol().reader_features or ())}
    assert not features & set(Feature)


@pytest.mark.long
def test_behind_what_a_reader_lacks_a_table_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    history = started(tmp_path, spark, readers=["delta-rs", "duckdb"])
    changed(history, WIDE, WIDEN, order("c", 20, 2**40))
    # A dump behind the change, with which a rebuilt table begins.
    low = history.last_seq
    keys = (0, 1, 3, 4, 20)
    history.commit(*(order("r", key, 2**40 + key) for key in keys), deletes_before=[(ORDERS, low)])
    _, reported = Rebuilder(history, spark).all()
    assert reported[-1] == "applied", reported
    assert by_deltalake(history, "id", "n") == [(key, 2**40 + key) for key in keys]
    changed(history, RENAMED, RENAME, order("u", 20, 7, "m"))
    blocked_by(history, "'n' was renamed to 'm'")
    history.commit(order("c", 21, 8, "m"))
    blocked_by(history, "'n' was renamed to 'm'")
    # Without that reader the merges go on.
    choose(history, readers=["duckdb"])
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED, receipt.error
    assert (20, 7) in by_spark(history, spark, "id", "m")


def test_a_rebuild_rids_a_table_of_what_its_readers_lack(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    history = started(tmp_path, spark)
    changed(history, WIDE, WIDEN, order("c", 20, 2**40))
    changed(history, RENAMED, RENAME, order("c", 21, 7, "m"))
    history.merge(spark)
    expected = by_spark(history, spark, "id", "m")
    choose(history, readers=["delta-rs"])
    (status,) = read_status(history.settings).tables
    found = ("deletionVectors", "columnMapping", "typeWidening")
    assert status.unread_by == {"delta-rs": found}
    show_status(history.settings, as_json=False)
    assert f"cannot read (delta-rs: {', '.join(found)})" in capsys.readouterr().out
    _, reported = Rebuilder(history, spark).all()
    assert reported[-1] == "applied", reported
    assert by_deltalake(history, "id", "m") == expected
    (status,) = read_status(history.settings).tables
    assert (status.unread_by, status.state.value, status.reason) == ({}, "active", None)
    history.commit(order("u", 20, 1, "m"), order("d", 21))
    assert history.merge(spark).tables[0].external_changes == ()
    assert by_deltalake(history, "id", "m") == by_spark(history, spark, "id", "m")


@pytest.mark.long
def test_a_step_that_no_plan_foresaw_is_refused_by_the_job(
    tmp_path: Path, spark: SparkSession
) -> None:
    from msgspec.structs import replace

    from tideline_spark.merge import run_plan

    history = started(tmp_path, spark)
    changed(history, WIDE, WIDEN, order("c", 20, 2**40))
    plan = history.plan()
    limited = replace(plan.tables[0], without=(Feature.TYPE_WIDENING.value,), mode=Mode.CURRENT)
    (receipt,) = run_plan(spark, replace(plan, tables=(limited,))).tables
    assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Misconfigured")
    assert "typeWidening, which a reader in the settings lacks" in str(receipt.error)
    assert len(by_spark(history, spark, "id")) == 8


# -- DuckDB and Polars ---------------------------------------------------------------------------

OTHERS: dict[str, tuple[tuple[str, ...], dict[str, str], tuple[Any, Any]]] = {
    "vectors": ((Feature.DELETION_VECTORS,), {"n": "int32"}, (1, 2)),
    "named": ((Feature.COLUMN_MAPPING,), {"a b": "string"}, ("x", "y")),
    "renamed": ((Feature.COLUMN_MAPPING,), {"n": "int32"}, (1, 2)),
    "wider": ((Feature.TYPE_WIDENING,), {"n": "int32"}, (1, 2**40)),
    "local": ((Feature.TIMESTAMP_NTZ,), {"n": "timestamp_ntz"}, (datetime(2024, 1, 1), None)),
    "parts": ((), {"status": "string", "n": "int32"}, (1, 2)),
    "mapped_parts": ((Feature.COLUMN_MAPPING,), {"status": "string", "a b": "string"}, ("x", "y")),
}
"""By table the feature that it needs, its columns besides the key, and values of the last one
before and after. Each has older rows in old files; ``parts`` has folders of every kind."""
PARTITIONED = ("parts", "mapped_parts")
LATER = {
    "renamed": ({"m": "int32"}, ColumnStep(StepKind.RENAME, "m", was="n")),
    "wider": ({"n": "int64"}, ColumnStep(StepKind.WIDEN, "n", type="int64")),
}
"""By table its columns later, and the step to them."""


def tables_of_each_feature(root: Path, spark: SparkSession) -> History:
    vectors = {
        f"public.{name}": {
            "deletion_vectors": name == "vectors",
            **({"partition_by": ["status"]} if name in PARTITIONED else {}),
        }
        for name in OTHERS
    }
    history = History(root, tables=vectors)

    def rows(name: str, columns: dict[str, str], which: int, *keys: int) -> list[Row]:
        value = OTHERS[name][2][which]
        last = list(columns)[-1]
        return [
            Row(
                f"public.{name}",
                "u" if which else "c",
                {"id": key, "status": HOSTILE[key % len(HOSTILE)], last: value},
            )
            for key in keys
        ]

    for name, (_, columns, _) in OTHERS.items():
        schema = schema_of(f"public.{name}", {"id": "int64", **columns}, ["id"])
        history.commit(Shaped(schema), *rows(name, columns, 0, *range(len(HOSTILE))))
    history.merge(spark)
    for name, (_, columns, _) in OTHERS.items():
        columns, *steps = LATER.get(name, (columns,))
        schema = schema_of(f"public.{name}", {"id": "int64", **columns}, ["id"])
        history.commit(*([Shaped(schema, tuple(steps))] if steps else ()))
        history.commit(*rows(name, columns, 1, 1, 2, 3))
    assert {one.outcome for one in history.merge(spark).tables} == {Outcome.APPLIED}
    return history


@pytest.mark.long
def test_duckdb_and_polars_read_what_they_are_said_to(tmp_path: Path, spark: SparkSession) -> None:
    """And what they are said to lack they refuse, or misread."""
    history = tables_of_each_feature(tmp_path, spark)
    asked, expected = {}, {}
    for name, (features, columns, _) in OTHERS.items():
        target = history.target(f"public.{name}").removeprefix("file://")
        last = list(LATER.get(name, (columns,))[0])
        asked[name] = (target, ["id", *last])
        rows = history.rows(spark, f"public.{name}")
        expected[name] = sorted(
            [[row["id"], *(row[one] for one in last)] for row in rows], key=repr
        )
        made = DeltaTable(target)
        found = set(made.protocol().reader_features or ()) & set(Feature)
        if "delta.columnMapping.mode" in made.metadata().configuration:
            found.add(Feature.COLUMN_MAPPING)  # Alone it is a version of the protocol.
        assert found == set(features), name
    python = installed_readers() / "bin" / "python"
    for reader in ("duckdb", "polars"):
        done = subprocess.run(
            [python, "tests/support/other_readers.py", reader],
            input=json.dumps(asked),
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        answers = json.loads(done.stdout)
        read, said = {}, {}
        for name, (features, *_) in OTHERS.items():
            answer = answers[name]
            rows = sorted(answer, key=repr) if isinstance(answer, list) else answer
            read[name] = rows == json.loads(json.dumps(expected[name], default=str))
            parted = name in PARTITIONED
            lacked = (READERS[reader].lacks(Feature(one), partitioned=parted) for one in features)
            said[name] = not any(lacked)
        assert read == said, (reader, answers)
