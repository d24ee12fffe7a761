"""A key that the settings name is one only if the server itself keeps it unique and not NULL."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.contract.schema import TableId
from tideline_capture.sources.key_configuration import KeyConfiguration
from tideline_capture.sources.mysql.catalog.column_types import ColumnRow
from tideline_capture.sources.mysql.catalog.problems import Key, Suspect, problem_of
from tideline_capture.sources.mysql.types.columns import Code, MysqlColumn, MysqlTable
from tideline_capture.sources.postgres.catalog.problems import TableParts, with_named_key

INDEX, PRIMARY = 50, 40


def postgres(
    key: tuple[str, ...],
    *,
    identity: str = "i",
    unique: tuple[tuple[int, bool, tuple[int, ...]], ...] = ((INDEX, True, (2, 1)),),
    firm: tuple[int, ...] = (1, 2),
) -> TableParts:
    row: list[Any] = [16384, "public", "t", "r", "p", identity, 1, PRIMARY, "m", False, 10]
    columns = [(1, "a", 23, -1, False, 0, "int", "int"), (2, "b", 23, -1, False, 0, "int", "int")]
    return with_named_key(
        TableParts(row, columns, [], []), key, list(unique), [(number,) for number in firm]
    )


@pytest.mark.parametrize(
    ("given", "reported", "fix"),
    [
        ({"key": ("a", "z")}, "no column z", "correct key"),
        ({"firm": (1,)}, "b may be NULL", 'ALTER COLUMN "b" SET NOT NULL'),
        ({"unique": ()}, "no unique index", "CREATE UNIQUE INDEX"),
        ({"unique": ((INDEX, True, (1,)),)}, "no unique index", "CREATE UNIQUE INDEX"),
        ({"unique": ((INDEX, True, (1, 2, 3)),)}, "no unique index", "CREATE UNIQUE INDEX"),
        ({"unique": ((INDEX, False, (1, 2)),)}, "not logged by it", "REPLICA IDENTITY"),
        ({"unique": ((INDEX, False, (1, 2)),), "identity": "d"}, "not logged by it", "USING INDEX"),
    ],
)
def test_postgres_refuses(given: dict[str, Any], reported: str, fix: str) -> None:
    parts = postgres(**{"key": ("a", "b"), **given})
    assert parts.refusal is not None
    assert reported in parts.refusal[0] and fix in parts.refusal[1]
    assert parts.key == ()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"unique": ((INDEX, False, (1, 2)),), "identity": "f"},
        {"unique": ((PRIMARY, False, (1, 2)),), "identity": "d"},
    ],
)
def test_postgres_takes(given: dict[str, Any]) -> None:
    parts = postgres(("b", "a"), **given)
    assert (parts.refusal, parts.key) == (None, [(2,), (1,)])


def mysql(key: tuple[str, ...], *keys: Key, nullable: str = "NO") -> str | None:
    columns = tuple(MysqlColumn(name, Code.LONG, nullable=False) for name in "ab")
    rows = [ColumnRow(name, "int", "int", None, 10, 0, None, None, None, nullable) for name in "ab"]
    table = MysqlTable(TableId("shop", "t"), columns, key)
    problem = problem_of(
        Suspect(table, rows, "BASE TABLE", "InnoDB", keys, (), KeyConfiguration(key=key))
    )
    return None if problem is None else problem[0]


def test_mysql() -> None:
    firm = Key("u", ("b", "a"), firm=True)
    assert mysql(("a", "b"), firm) is None
    assert "no unique index" in str(mysql(("a",), firm))
    assert "no unique index" in str(mysql(("a", "b"), Key("u", ("a", "b"), firm=False)))
    assert "no column z" in str(mysql(("z",), firm))
    loose = mysql(("a", "b"), Key("u", ("a", "b"), firm=False), nullable="YES")
    assert "may be NULL" in str(loose)


@pytest.mark.parametrize(
    ("engine", "counted", "refused"),
    [("InnoDB", True, False), ("MyISAM", True, True), ("Aria", True, True), ("Aria", False, False)],
)
def test_what_no_snapshot_shows_is_not_counted(engine: str, counted: bool, refused: bool) -> None:
    """Its copy would hold rows that the log has behind the copy's place: they would count twice."""
    columns = (MysqlColumn("a", Code.LONG, nullable=True),)
    rows = [ColumnRow("a", "int", "int", None, 10, 0, None, None, None, "YES")]
    table = MysqlTable(TableId("shop", "bag"), columns, ())
    choice = KeyConfiguration(keyless=True, counted=counted)
    problem = problem_of(Suspect(table, rows, "BASE TABLE", engine, (), (), choice))
    assert (problem is not None and "no snapshots" in problem[0]) is refused
