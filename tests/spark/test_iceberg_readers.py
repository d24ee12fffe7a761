"""Spark, pyiceberg and DuckDB read the same rows of Iceberg tables with deleted ones, in each way
that deletes are kept."""

from __future__ import annotations

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.integration.test_first_day import installed_readers
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.client import find_table
from tideline.warehouse.iceberg.names import identifier_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ICEBERG.md"
T = "public.t"
WAS = {"id": "int64", "n": "int32", "price": "decimal(10,2)", "name": "string"}
IS = {"id": "int64", "n": "int64", "price": "decimal(10,2)", "label": "string", "more": "string"}
STEPS = (
    ColumnStep(StepKind.RENAME, "label", was="name"),
    ColumnStep(StepKind.WIDEN, "n", type="int64"),
    ColumnStep(StepKind.ADD, "more", type="string"),
)
WAYS = {"vectors": (3, True), "positions": (2, True), "rewritten": (3, False)}
"""By the way that deletes are kept: the format's version, and whether deletion vectors are wanted
(of version 2: files of positions)."""
SUFFIXES = {"vectors": {"puffin"}, "positions": {"parquet"}, "rewritten": set[str]()}


def merged(root: Path, place: Warehouse, spark: SparkSession, *, vectors: bool) -> History:
    """A table with rows of two schemas, some of them changed and deleted."""
    history = History(root, tables={T: {"deletion_vectors": vectors}}, place=place)

    def merge() -> None:
        [receipt] = history.merge(spark).tables
        assert receipt.outcome is Outcome.APPLIED, receipt.error

    history.commit(Shaped(schema_of(T, WAS, ["id"])))
    history.commit(
        *(
            Row(T, "c", {"id": key, "n": key, "price": Decimal(key) / 4, "name": f"é{key}"})
            for key in range(60)
        )
    )
    merge()
    history.commit(*(Row(T, "d", {"id": key}) for key in range(0, 30, 3)))
    merge()
    history.commit(Shaped(schema_of(T, IS, ["id"]), STEPS))
    new = {"n": 2**40, "price": None, "label": None, "more": "x"}
    history.commit(Row(T, "u", {"id": 1, **new}), Row(T, "c", {"id": 99, **new}))
    merge()
    return history


def by_duckdb(metadata: str, home: Path) -> list[list[Any]]:
    python = installed_readers(PAGE.read_text(), "Read it") / "bin" / "python"
    done = subprocess.run(
        [python, "tests/support/other_readers.py", "duckdb-iceberg"],
        input=json.dumps({T: (metadata.removeprefix("file://"), list(IS))}),
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout)[T]
    assert isinstance(found, list), found
    return sorted(found)


@pytest.mark.parametrize("way", WAYS)
def test_all_readers_see_the_same_rows(way: str, tmp_path: Path, spark: SparkSession) -> None:
    version, vectors = WAYS[way]
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    iceberg = place.iceberg.model_copy(update={"format_version": version})
    place = place.model_copy(update={"iceberg": iceberg})
    use_catalog(spark, place)
    history = merged(tmp_path, place, spark, vectors=vectors)
    table = find_table(place, identifier_of(history.target(T)))
    assert table is not None and table.metadata.format_version == version
    name = ".".join(identifier_of(history.target(T)))
    deletes = spark.newSession().table(f"tideline.{name}.delete_files").collect()
    assert {row["file_path"].rpartition(".")[2] for row in deletes} == SUFFIXES[way]
    in_spark = [[row[one] for one in IS] for row in history.rows(spark, T)]
    assert len(in_spark) == 51
    expected = json.loads(json.dumps(in_spark, default=str))
    rows = [[row[one] for one in IS] for row in table.scan().to_arrow().to_pylist()]
    assert json.loads(json.dumps(sorted(rows, key=lambda row: row[0]), default=str)) == expected
    assert by_duckdb(table.metadata_location, tmp_path) == expected
