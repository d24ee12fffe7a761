# ruff: noqa: S608  statements are made of constants and our own names
"""The toy's server: SQLite in memory that several processes share, and a log that triggers write.

Writers take turns, so the log has transactions whole and in the order in which they become visible.
Each ends with an entry ``commit``; an entry of a row says in which version of its table it was.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideline.contract.schema import Column, TableSchema

SCHEMA = "toy"
_NOW_US = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
_MADE = (
    "CREATE TABLE _server (id TEXT, quiet INTEGER)",
    "CREATE TABLE _log (id INTEGER PRIMARY KEY, at_us INTEGER, kind TEXT, version INTEGER,"
    " old TEXT, new TEXT)",
    "CREATE TABLE _versions (id INTEGER PRIMARY KEY, name TEXT, made INTEGER, columns TEXT)",
)
_DDL = re.compile(r"(CREATE|ALTER|DROP) TABLE (\w+)(?: (?:ADD|DROP) COLUMN (\w+))?(.*)", re.S)
_TRUNCATE = re.compile(r"TRUNCATE TABLE (\w+)")
_TYPES = (("INT", "int64"), ("TIMESTAMP", "timestamp_ntz"))


@dataclass(frozen=True, slots=True)
class Version:
    """A table as it was between two statements that changed it; ``made``: by which it was made."""

    number: int
    name: str
    made: int
    columns: tuple[tuple[str, str], ...]

    @property
    def schema(self) -> TableSchema:
        """The contract's schema; ``id`` is the key of every table."""
        columns = tuple(
            Column(name, _logical(kind), kind, nullable=name != "id") for name, kind in self.columns
        )
        return TableSchema(f"{SCHEMA}.{self.name}", columns, ("id",))


def _logical(kind: str) -> str:
    return next((logical for word, logical in _TYPES if kind.startswith(word)), "string")


def make_database(path: Path) -> None:
    """A new, empty server."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    for statement in _MADE:
        connection.execute(statement)
    connection.execute("INSERT INTO _server VALUES (?, 0)", (uuid.uuid4().hex,))
    connection.commit()
    connection.close()


class Connection:
    """A session; thread-safe."""

    def __init__(self, path: Path, turn_s: float = 60.0) -> None:
        self._lock = threading.RLock()
        self._session = sqlite3.connect(
            path, timeout=turn_s, isolation_level=None, check_same_thread=False
        )
        self._session.create_function("noise", 1, lambda number: str(uuid.uuid4()) * 72)

    def close(self) -> None:
        with self._lock:
            self._session.close()

    def rows(self, query: str, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock:
            return self._session.execute(query, given).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads within see one state of everything."""
        with self._lock:
            self._session.execute("BEGIN")
            try:
                yield
            finally:
                self._session.execute("ROLLBACK")

    def log(self, kind: str, new: object) -> None:
        """Write an entry of its own, in a transaction."""
        with self._lock:
            self.begin()
            self._note(kind, 0, json.dumps(new))
            self.commit()

    def begin(self) -> None:
        self._session.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._note("commit", 0, None)
        self._session.execute("COMMIT")

    def rollback(self) -> None:
        if self._session.in_transaction:
            self._session.execute("ROLLBACK")

    def execute(self, statement: str) -> None:
        """A statement of a client, in a transaction of its own unless one is open."""
        with self._lock:
            word = statement.split()[0].upper()
            if word == "BEGIN":
                self.begin()
            elif word == "COMMIT":
                self.commit()
            elif statement == "ROLLBACK":
                self.rollback()
            elif self._session.in_transaction:
                self._change(statement)
            else:
                self.begin()
                try:
                    self._change(statement)
                    self.commit()
                except BaseException:
                    self.rollback()
                    raise

    def versions(self) -> list[Version]:
        """Every table as it is now."""
        found = self.rows(
            "SELECT max(v.id), v.name, v.made, v.columns FROM _versions v JOIN sqlite_schema s"
            " ON s.name = v.name AND s.type = 'table' GROUP BY v.name"
        )
        return [_version(*row) for row in found]

    def version(self, number: int) -> Version:
        (row,) = self.rows("SELECT id, name, made, columns FROM _versions WHERE id = ?", (number,))
        return _version(*row)

    # -- what keeps the log ---------------------------------------------------------------------

    def _change(self, statement: str) -> None:
        if found := _TRUNCATE.match(statement):
            self._truncate(found[1])
        elif found := _DDL.match(statement):
            self._define(statement, *found.groups(default=""))
        else:
            self._session.execute(statement)

    def _truncate(self, name: str) -> None:
        self._session.execute("UPDATE _server SET quiet = 1")
        self._session.execute(f"DELETE FROM {name}")
        self._session.execute("UPDATE _server SET quiet = 0")
        self._note("truncate", 0, json.dumps(f"{SCHEMA}.{name}"))

    def _define(self, text: str, verb: str, name: str, column: str, rest: str) -> None:
        """Carry out DDL. Its entry says what it does to the columns: without ``steps`` that is
        not known."""
        for operation in ("INSERT", "UPDATE", "DELETE"):
            self._session.execute(f"DROP TRIGGER IF EXISTS {name}_{operation}")
        self._session.execute(text)
        reported = {"text": text, "table": f"{SCHEMA}.{name}", "verb": verb}
        if column and "DEFAULT" not in rest:
            reported["step"] = "add" if f"ADD COLUMN {column}" in text else "drop"
            reported["column"] = column
        if verb != "DROP":
            self._remember(name, made=verb == "CREATE")
        self._note("ddl", 0, json.dumps(reported))

    def _remember(self, name: str, *, made: bool) -> None:
        """A new version of a table, and the triggers that say so in the log."""
        described = self._session.execute(f"PRAGMA table_info({name})").fetchall()
        columns = [(one[1], one[2]) for one in described]
        (last,) = self._session.execute(
            "SELECT max(made) FROM _versions WHERE name = ?", (name,)
        ).fetchone()
        number = self._session.execute(
            "INSERT INTO _versions (name, columns) VALUES (?, ?)", (name, json.dumps(columns))
        ).lastrowid
        born = number if made else last
        self._session.execute("UPDATE _versions SET made = ? WHERE id = ?", (born, number))
        for operation, old, new in (("INSERT", 0, 1), ("UPDATE", 1, 1), ("DELETE", 1, 0)):
            images = [
                f"json_array({', '.join(f'{side}.{column}' for column, _ in columns)})"
                if there
                else "NULL"
                for side, there in (("OLD", old), ("NEW", new))
            ]
            self._session.execute(
                f"CREATE TRIGGER {name}_{operation} AFTER {operation} ON {name}"
                " WHEN (SELECT quiet FROM _server) = 0 BEGIN"
                " INSERT INTO _log (at_us, kind, version, old, new)"
                f" VALUES ({_NOW_US}, 'row', {number}, {', '.join(images)}); END"
            )

    def _note(self, kind: str, version: int, new: str | None) -> None:
        now_us = time.time_ns() // 1000
        self._session.execute(
            "INSERT INTO _log (at_us, kind, version, new) VALUES (?, ?, ?, ?)",
            (now_us, kind, version, new),
        )


def _version(number: int, name: str, made: int, columns: str) -> Version:
    return Version(number, name, made, tuple((one, kind) for one, kind in json.loads(columns)))
