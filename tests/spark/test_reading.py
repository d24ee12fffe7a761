"""The lines that the README shows for reading a table, each as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.settings.tables import TableSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).resolve().parents[2] / "README.md"
DETAILS = 'public."Order Details"'
SCHEMA = schema_of(DETAILS, {"id": "int32", "status": "string"}, ["id"])
_LINE = re.compile(r"^\| ([^|]+?) \| [^|]+ \| `([^`]+)` \| (read|\*\*off\*\*) \|$", re.M)
NOT_OURS = ("Polars", "DuckDB")
"""Readers that are none of the project's dependencies."""
ROWS: dict[str, Callable[[Any], int]] = {
    "Spark": lambda found: int(found.count()),
    "deltalake": lambda found: int(found.num_rows),
    "deltalake, by SQL": lambda found: int(found.num_rows),
    "pandas": len,
}


def lines() -> dict[str, tuple[str, bool]]:
    """By reader the line, and whether it wants deletion vectors off."""
    found = _LINE.findall(README.read_text())
    return {reader: (line, needs != "read") for reader, line, needs in found}


def test_every_reader_of_the_readme_is_known_here() -> None:
    assert sorted(lines()) == sorted([*ROWS, *NOT_OURS])


@pytest.mark.parametrize("vectors", [True, False])
def test_each_line_reads_what_it_is_said_to(
    tmp_path: Path, spark: SparkSession, vectors: bool
) -> None:
    history = History(tmp_path)
    entry = TableSettings(deletion_vectors=vectors)
    history.settings = history.settings.model_copy(update={"tables": {DETAILS: entry}})
    history.commit(Shaped(SCHEMA))
    history.commit(*(Row(DETAILS, "c", {"id": key, "status": "new"}) for key in range(30)))
    history.merge(spark)
    history.commit(Row(DETAILS, "d", {"id": 3}), Row(DETAILS, "u", {"id": 4, "status": "paid"}))
    history.merge(spark)
    path = history.target(DETAILS).removeprefix("file://")
    assert path.endswith("/public/Order~20Details")
    given = {"path": path, "spark": spark, "DeltaTable": DeltaTable, "QueryBuilder": QueryBuilder}
    for reader, count in ROWS.items():
        line, wants_off = lines()[reader]
        if vectors and wants_off:
            with pytest.raises(DeltaError, match=r"(?i)deletion.?vectors"):
                eval(line, dict(given))
        else:
            assert count(eval(line, dict(given))) == 29, reader
