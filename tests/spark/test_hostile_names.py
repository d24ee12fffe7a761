"""Names of tables and columns, and comments, go through merges as data: nothing is put in the place
of what they say, and nothing of the process's environment comes out with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from tests.fixtures.hostile_names import NAMES, VARIABLE, one_case
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.progress import external_of
from tideline.contract.description import describe
from tideline.contract.receipt import Outcome
from tideline.contract.schema import TableId
from tideline.planner import applied_state
from tideline_spark import local_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDE = "public.wide"
REFERENCES = [
    "${env:JAVA_HOME}",
    "${env.JAVA_HOME}",
    "${system:user.name}",
    "${user.name}",
    "${line.separator}",
    "${spark.app.name}",
    "${spark.no.such.setting}",
]
"""What Spark or Hadoop knows something of, in the process that the tests share."""
COLUMNS = one_case([*(one.name.replace(VARIABLE, "JAVA_HOME") for one in NAMES), *REFERENCES])


def row(op: str, key: int, word: str, lost: Sequence[str] = ()) -> Row:
    """A change; of the columns ``lost`` the log has carried nothing."""
    reported = {n: None if n in lost else text for n, text in values(key, word).items()}
    return Row(WIDE, op, reported, unchanged=tuple(lost))


def values(key: int, word: str) -> dict[str, Any]:
    return {"id": key, **{name: f"{word} {name} {key}" for name in COLUMNS}}


def written(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def applied(history: History, spark: SparkSession) -> None:
    for one in history.merge(spark).tables:
        assert (one.outcome, one.error) == (Outcome.APPLIED, None), one.table
    assert history.plan().nothing_to_do


@pytest.mark.parametrize("few", [True, False], ids=["in the driver", "where they lie"])
def test_columns_of_every_name(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(local_parts, "ROWS_MAX", 0)
    history.commit(
        Shaped(schema_of(WIDE, {"id": "int32", **dict.fromkeys(COLUMNS, "string")}, ["id"]))
    )
    history.commit(row("c", 1, "a"), row("c", 2, "a"))
    applied(history, spark)
    lost = COLUMNS[::3]
    history.commit(row("u", 1, "b", lost), row("c", 3, "b"))
    applied(history, spark)
    first = {**values(1, "b"), **{name: f"a {name} 1" for name in lost}}
    found = [
        {k: v for k, v in r.items() if not k.startswith("_tl_")} for r in history.rows(spark, WIDE)
    ]
    assert found == [first, values(2, "a"), values(3, "b")]
    assert os.environ["JAVA_HOME"].encode() not in written(history.root / "warehouse")


def test_keys_of_such_names(history: History, spark: SparkSession) -> None:
    key = ["${user.name}", "a`b", "'; --"]
    kinds = {"id": "int32", **dict.fromkeys(key, "string"), "v": "string"}
    history.commit(Shaped(schema_of(WIDE, kinds, key)))

    def keyed(op: str, end: str, **other: Any) -> Row:
        return Row(WIDE, op, {"id": 1, "v": end, **{n: n + end for n in key}}, **other)

    history.commit(keyed("c", "1"), keyed("c", "2"))
    applied(history, spark)
    history.commit(keyed("u", "3", before={n: n + "1" for n in key}), keyed("d", "2"))
    applied(history, spark)
    (left,) = history.rows(spark, WIDE)
    assert {n: left[n] for n in key} == {n: n + "3" for n in key}


def test_tables_of_such_names(history: History, spark: SparkSession) -> None:
    tables = [str(TableId(schema, name)) for name in REFERENCES for schema in ("public", name)]
    shape = {"id": "int32", "v": "string"}
    history.commit(*(Shaped(schema_of(table, shape, ["id"])) for table in tables))
    for number in (1, 2):
        history.commit(*(Row(table, "c", {"id": number, "v": table}) for table in tables))
        applied(history, spark)
    for table in tables:
        assert [(r["id"], r["v"]) for r in history.rows(spark, table)] == [(1, table), (2, table)]
    known = applied_state(history.settings).tables
    assert {external_of(known[table]) for table in tables} == {()}
    assert os.environ["JAVA_HOME"].encode() not in written(history.root / "warehouse")


def test_folders_whose_names_are_patterns(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of several parts is read once, and none of a folder that the name would match."""
    monkeypatch.setattr(local_parts, "ROWS_MAX", 0)
    for name in ("lake 1 a", "lake [1] {a,b}*?"):
        (tmp_path / name).mkdir()
        history = History(tmp_path / name)
        history.commit(Shaped(schema_of(WIDE, {"id": "int32", "v": "string"}, ["id"])))
        for op, key in (("c", 1), ("c", 2), ("u", 1)):
            history.commit(Row(WIDE, op, {"id": key, "v": name}))
        applied(history, spark)
        history.commit(Row(WIDE, "c", {"id": 3, "v": name}))
        history.commit(Row(WIDE, "d", {"id": 2}))
        applied(history, spark)
        found = spark.read.format("delta").load(unquote(history.target(WIDE)))
        assert sorted((r["id"], r["v"]) for r in found.collect()) == [(1, name), (3, name)]


@pytest.mark.parametrize("reference", REFERENCES)
def test_comments(history: History, spark: SparkSession, reference: str) -> None:
    history.commit(Shaped(schema_of(WIDE, {"id": "int32", "v": "string"}, ["id"])))
    comment = f"of {reference}, 'quoted' \\ \n\u202e"
    reported = describe(WIDE, comment, {"id": comment, "v": comment}, ("id",))
    history.chain.write_description(reported)
    history.commit(
        Row(WIDE, "c", {"id": 1, "v": "a"}), states={WIDE: {"description": reported.fingerprint}}
    )
    applied(history, spark)
    history.commit(Row(WIDE, "u", {"id": 1, "v": "b"}), Row(WIDE, "c", {"id": 2, "v": "c"}))
    applied(history, spark)
    assert [r["v"] for r in history.rows(spark, WIDE)] == ["b", "c"]
    table = DeltaTable(history.target(WIDE).removeprefix("file://"))
    found = {one.name: one.metadata.get("comment") for one in table.schema().fields}
    assert {found["id"], found["v"]} == {comment.replace("${", "$ {")}
    assert table.metadata().description == comment
    assert os.environ["JAVA_HOME"].encode() not in written(history.root / "warehouse")
