"""A log of the events that a consumer has worked on, in the consumer's own database.

An event that is delivered at least once has its effects exactly once if the consumer notes it in
the transaction of its work::

    with connection:  # of psycopg2: commits at the end
        if not seen(connection, message_id):
            work(connection, message)

Two consumers that have the same event wait for each other: the second one's call returns once the
first one's transaction has ended, by what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

TABLE = "tideline_seen"
ID_BYTES_MAX = 255


class DatabaseConnection(Protocol):
    """A connection as Python's DB-API 2.0 has it (PEP 249)."""

    def cursor(self) -> Any: ...


def make_seen_table(connection: DatabaseConnection, table: str = TABLE) -> None:
    """Make the log's ``table``, unless it is there; the caller commits. MySQL and MariaDB commit
    what was before, as with each DDL. Raises ValueError for a name that is none, or a database
    that is not known."""
    _run(connection, _statements(connection).create.format(table=_checked(table)))


def seen(connection: DatabaseConnection, event_id: str, table: str = TABLE) -> bool:
    """Return whether ``event_id`` was noted before, by a transaction that was committed or by this
    one; note it, else.

    The caller commits it together with the work. Raises ValueError for an id of more than 255
    bytes, and what the database raises.
    """
    if not event_id or len(event_id.encode()) > ID_BYTES_MAX:
        raise ValueError(f"an event's id has 1 to {ID_BYTES_MAX} bytes in UTF-8")
    statements = _statements(connection)
    statement = statements.insert.format(table=_checked(table), value=statements.placeholder)
    return statements.insert_is_repeated(connection, statement, event_id)


def forget_seen(connection: DatabaseConnection, older_than: timedelta, table: str = TABLE) -> int:
    """Remove the notes that are ``older_than`` that, by the database's clock; return how many. The
    caller commits. What is delivered again later than that counts as new."""
    statements = _statements(connection)
    statement = statements.delete.format(table=_checked(table), value=statements.placeholder)
    cursor = _run(connection, statement, older_than.total_seconds())
    return int(cursor.rowcount)


@dataclass(frozen=True, slots=True)
class _SeenStatements:
    """The statements of one kind of database. ``insert_is_repeated`` runs the insert, and returns
    whether the id was there."""

    create: str
    insert: str
    delete: str
    placeholder: str
    insert_is_repeated: Callable[[DatabaseConnection, str, str], bool]


def _counted(connection: DatabaseConnection, statement: str, event_id: str) -> bool:
    return bool(_run(connection, statement, event_id).rowcount == 0)


def _refused(connection: DatabaseConnection, statement: str, event_id: str) -> bool:
    """Run an insert that a repeated id fails: there only the statement is undone, and with IGNORE
    an id that does not fit would be cut."""
    try:
        _run(connection, statement, event_id)
    except Exception as error:
        if error.args and error.args[0] == _DUPLICATE:
            return True
        raise
    return False


_DUPLICATE = 1062
"""ER_DUP_ENTRY, of MySQL and MariaDB."""
_POSTGRES = _SeenStatements(
    "CREATE TABLE IF NOT EXISTS {table} (event_id text PRIMARY KEY,"
    " seen_at timestamptz NOT NULL DEFAULT now())",
    "INSERT INTO {table} (event_id) VALUES ({value}) ON CONFLICT DO NOTHING",
    "DELETE FROM {table} WHERE seen_at < now() - {value} * interval '1 second'",
    "%s",
    _counted,
)
_MYSQL = _SeenStatements(
    "CREATE TABLE IF NOT EXISTS {table} (event_id varbinary(255) PRIMARY KEY,"
    " seen_at timestamp(6) NOT NULL DEFAULT current_timestamp(6), KEY (seen_at)) ENGINE=InnoDB",
    "INSERT INTO {table} (event_id) VALUES ({value})",
    "DELETE FROM {table}"
    " WHERE seen_at < current_timestamp(6) - INTERVAL round({value} * 1000000) MICROSECOND",
    "%s",
    _refused,
)
_SQLITE = _SeenStatements(
    "CREATE TABLE IF NOT EXISTS {table} (event_id text PRIMARY KEY,"
    " seen_at real NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0))",
    "INSERT INTO {table} (event_id) VALUES ({value}) ON CONFLICT DO NOTHING",
    "DELETE FROM {table} WHERE seen_at < (julianday('now') - 2440587.5) * 86400.0 - {value}",
    "?",
    _counted,
)
_BY_PACKAGE: Mapping[str, _SeenStatements] = {
    "psycopg2": _POSTGRES,
    "psycopg": _POSTGRES,
    "pymysql": _MYSQL,
    "MySQLdb": _MYSQL,
    "sqlite3": _SQLITE,
}
"""By the package of the connection's class."""


def _statements(connection: DatabaseConnection) -> _SeenStatements:
    for kind in type(connection).__mro__:
        found = _BY_PACKAGE.get(kind.__module__.partition(".")[0])
        if found is not None:
            return found
    raise ValueError(
        f"a connection of {type(connection).__module__} is none of {', '.join(_BY_PACKAGE)}"
    )


def _checked(table: str) -> str:
    if not all(part.isidentifier() and part.isascii() for part in table.split(".")):
        raise ValueError(f"{table!r} is no plain name of a table")
    return table


def _run(connection: DatabaseConnection, statement: str, *values: object) -> Any:
    cursor = connection.cursor()
    cursor.execute(statement, values)
    return cursor
