"""What is read of a statement is what the server did: hundreds of statements, each on tables of its
own, compared with the catalog and all rows before and after it.

What is read may be less than what was done (the table is in doubt, a dump follows); never another
thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest

from devtools.services.binlog_server import BinlogServer
from tests.fixtures.ddl_statements import STRICT, TABLES, Ddl, statements, tables_of
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.odd_events import read_events
from tideline.contract.schema import TableId
from tideline.contract.steps import StepKind
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.log_events import Query, parse_query
from tideline_capture.sources.mysql.ddl.logged import read_statement
from tideline_capture.sources.mysql.ddl.statement import (
    DdlStatement,
    StatementKind,
    names_begun,
    names_ended,
)
from tideline_capture.sources.mysql.names import quoted

PARTS = 12
_FRAMES = (StatementKind.BEGIN, StatementKind.COMMIT)
_BYTES = ("blob", "tinyblob", "mediumblob", "longblob", "bit", "geometry", "point",
          "geometrycollection", "geomcollection", "vector")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table, those that are generated, and its rows as texts."""

    columns: tuple[str, ...]
    generated: frozenset[str]
    rows: tuple[tuple[str | None, ...], ...]


Tables = Mapping[str, Table]


class Session:
    """Two databases, ``db1`` and ``db2``, in which statements are run."""

    def __init__(self, server: BinlogServer) -> None:
        self._server = server
        self._connection = server.connect(charset="utf8mb4")
        # Another one looks at tables: a temporary one hides what has its name.
        self._looking = server.connect(charset="utf8mb4")

    def close(self) -> None:
        for database in ("db1", "db2", "db3"):
            self.run(f"DROP DATABASE IF EXISTS {database}")
        self._connection.close()
        self._looking.close()

    def run(self, text: str) -> list[tuple[Any, ...]]:
        return _rows(self._connection, text)

    def prepare(self, ddl: Ddl) -> None:
        """Make the tables that the statement may be about."""
        self.run(f"SET sql_mode = '{STRICT}', foreign_key_checks = 0")
        for database in ("db1", "db2"):
            self.run(f"DROP DATABASE IF EXISTS {database}")
            self.run(f"CREATE DATABASE {database} CHARACTER SET latin1")
        self.run("USE db1")
        for name in tables_of(ddl.text):
            made, rows = TABLES[name]
            table = "db2.o" if name == "db2.o" else quoted(name)
            self.run(f"CREATE TABLE {table} {made}")
            self.run(f"INSERT INTO {table} {rows}")
        self.run("SET foreign_key_checks = 1")

    def perform(self, ddl: Ddl) -> list[Query] | None:
        """Return what the log has of the statement; None when the server refuses it."""
        path = self._server.data / self.run("SHOW BINARY LOGS")[-1][0]
        begin = path.stat().st_size
        self.run(f"SET sql_mode = '{ddl.mode}'")
        try:
            self.run(ddl.text)
        except (pymysql.MySQLError, UnicodeError):
            return None
        finally:
            self.run("COMMIT")
            self.run(f"SET sql_mode = '{STRICT}'")
        data = path.read_bytes()
        events = read_events(data[:4] + _first_event(data) + data[begin:])
        return [parse_query(event.body) for event in events if event.code == EventCode.QUERY]

    def tables(self) -> Tables:
        """Return all tables of both databases, by ``database.name``."""
        named = _rows(
            self._looking,
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN"
            " ('db1', 'db2') AND table_type NOT IN ('VIEW', 'SEQUENCE')",
        )
        return {str(TableId(*name)): self._table(*name) for name in named}

    def _table(self, schema: str, name: str) -> Table:
        columns = _rows(
            self._looking,
            "SELECT column_name, data_type, generation_expression > '' FROM"
            " information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            schema,
            name,
        )
        shown = ", ".join(
            f"HEX({quoted(column)})"
            if kind in _BYTES
            else f"CONVERT({quoted(column)} USING utf8mb4)"
            for column, kind, _ in columns
        )
        try:
            rows = _rows(self._looking, f"SELECT {shown} FROM {quoted(schema)}.{quoted(name)}")  # noqa: S608
        except pymysql.MySQLError:  # A table without its tablespace, or of another server.
            rows = []
        generated = frozenset(column for column, _, is_generated in columns if is_generated)
        plain = sorted((tuple(map(_plain, row)) for row in rows), key=str)
        return Table(tuple(column for column, _, _ in columns), generated, tuple(plain))


def _rows(connection: Any, text: str, *values: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text, values or None)
        return list(cursor.fetchall())


def _plain(text: str | None) -> str | None:
    """A number without zeros in front, a moment without them behind."""
    if text is None:
        return None
    if re.fullmatch(r"0+[0-9]+(\.[0-9]+)?", text):
        return re.sub("^0+(?=[0-9])", "", text)
    return re.sub(r"(?<=:[0-9]{2})\.0+$", "", text)


def _first_event(data: bytes) -> bytes:
    """The event that says how the file is written."""
    return data[4 : 4 + int.from_bytes(data[13:17], "little")]


def mistakes(found: DdlStatement, query: Query, before: Tables, after: Tables) -> Iterator[str]:
    """What the reading says that is not so."""
    if found.kind in (StatementKind.DML, StatementKind.UNKNOWN):
        # Whoever may make a table somewhere could stop the worker with it.
        yield "it is not known for DDL"
        return
    tables = {str(table) for table in found.tables} | {str(new) for _, new in found.renames}
    for name in before.keys() | after.keys():
        unchanged = before.get(name) == after.get(name) or name.lower() in map(str.lower, tables)
        if not unchanged and name.partition(".")[0] != found.schema:
            yield f"{name} is another table now"
    if found.kind is StatementKind.TRUNCATE:
        yield from (f"{name} has rows" for name in tables if after[name].rows)
    begun, ended = names_begun(found), names_ended(found)
    # What was not there to be renamed may be taken for renamed: a dump too many.
    if b"IF EXISTS" not in query.text.upper():
        yield from (f"{table} is not there" for table in begun if str(table) not in after)
    if found.kind is not StatementKind.CREATE_TABLE:
        gone = {str(table) for table in ended} - {str(table) for table in begun}
        yield from (f"{name} is still there" for name in gone & after.keys())
    if found.kind is StatementKind.ALTER_TABLE and not found.renames:
        for name in {str(found.tables[0])} & before.keys():
            yield from mistaken_columns(found, query, before[name], after[name])


def mistaken_columns(found: DdlStatement, query: Query, old: Table, new: Table) -> Iterator[str]:
    """What it says of columns and of rows that exist."""
    if found.neutral and _filled(old, new, {}) != list(new.rows):
        yield "rows are not as they were"
    if found.steps is None or (found.converts and not query.strict):
        return
    cased = {name.lower(): name for name in old.columns}
    dropped = {cased.get(s.column.lower()) for s in found.steps if s.kind is StepKind.DROP}
    renamed = {cased.get(s.was.lower()): s.column for s in found.steps if s.kind is StepKind.RENAME}
    origins = {renamed.get(name, name): name for name in old.columns if name not in dropped}
    known = {name.lower() for name in origins}
    added = {s.column: s.default for s in found.steps if s.kind is StepKind.ADD}
    added = {name: text for name, text in added.items() if name.lower() not in known}
    if origins.keys() | added.keys() != set(new.columns):
        yield f"columns are {new.columns}"
    elif not found.converts:
        columns = tuple(origins) + tuple(added)
        picked = [old.columns.index(name) for name in origins.values()]
        rows = [(*(row[at] for at in picked), *added.values()) for row in old.rows]
        generated = old.generated | new.generated
        then = Table(columns, generated, tuple(rows))
        if _filled(then, new, added) != list(new.rows):
            yield "rows hold other values"


def _filled(old: Table, new: Table, defaults: Mapping[str, str | None]) -> list[Any]:
    """The rows of ``new`` as they follow from ``old``; what is generated is taken as it is."""
    at = {name: index for index, name in enumerate(old.columns)}
    rows = []
    for row in sorted(old.rows, key=str) if len(new.rows) == len(old.rows) else ():
        rows.append(tuple(row[at[name]] if name in at else None for name in new.columns))
    generated = [index for index, name in enumerate(new.columns) if name in new.generated]
    rows.sort(key=str)
    return [
        tuple(have[i] if i in generated else value for i, value in enumerate(row))
        for row, have in zip(rows, new.rows, strict=False)
    ]


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_read_is_what_was_done(mysql_database: MysqlDatabase, part: int) -> None:
    wrong, accepted = [], 0
    for ddl in list(statements())[part::PARTS]:
        if ddl.mariadb and mysql_database.flavour != "mariadb":
            continue
        session = Session(mysql_database.server)
        try:
            session.prepare(ddl)
            before = session.tables()
            queries = session.perform(ddl)
            if queries is None:
                continue
            accepted += 1
            after = session.tables()
        finally:
            session.close()
        mariadb = mysql_database.flavour == "mariadb"
        found = [(read_statement(query, mariadb=mariadb), query) for query in queries]
        found = [(one, query) for one, query in found if one.kind not in _FRAMES]
        if len(found) == 1:
            wrong += [(ddl, what) for what in mistakes(*found[0], before, after)]
        elif not found and before != after:
            wrong.append((ddl, "nothing is read"))
    assert not wrong
    assert accepted > 20
