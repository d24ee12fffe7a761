"""Marks as rows: one row of a table of ours, changed in a transaction of its own.

The binlog has them in commit order, and with ``binlog_order_commits = ON`` what is before a mark in
the log was visible before the mark was written (MariaDB has no other order). Every pipeline has one
row, by its incarnation; rows of others, and whatever else is written to the table, are no marks.
"""

from __future__ import annotations

import threading
from typing import Any

import pymysql

from capture.core.events import Mark, MarkKind
from capture.sources.mysql.connect import query_failed
from capture.sources.mysql.names import qualified
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.schema import TableId

TABLE = "watermark"
COLUMNS = ("incarnation", "kind", "token", "clock_us")
CREATE_DATABASE = "CREATE DATABASE IF NOT EXISTS {database}"
CREATE_TABLE = """CREATE TABLE IF NOT EXISTS {table} (
  incarnation VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  kind CHAR(1) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  token VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  clock_us BIGINT NOT NULL
) ENGINE = InnoDB"""

SESSION = {"lock_wait_timeout": "30", "sql_mode": "'STRICT_ALL_TABLES'"}
"""Variables of the session that writes. A mark that does not fit its columns is an error, never
another mark."""

LANE = "~"
"""Between incarnation and lane, in the rows that pulses are written to: one for each lane."""

_FORM = {
    ("incarnation", "varchar", 64, "PRI"),
    ("kind", "char", 1, ""),
    ("token", "varchar", 64, ""),
    ("clock_us", "bigint", None, ""),
}
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, COLUMN_KEY
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_CHANGED = (1049, 1054, 1146, 1264, 1265, 1364, 1366, 1406)
"""Errors of a table that is gone or has other columns: the next session makes it, or says so."""

_WRITE = """
INSERT INTO {table} (incarnation, kind, token, clock_us)
VALUES (%s, %s, %s, {clock})
ON DUPLICATE KEY UPDATE kind = VALUES(kind), token = VALUES(token), clock_us = VALUES(clock_us)
"""
CLOCK = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
"""The server's clock, µs since 1970 UTC. SYSDATE, as the session's ``timestamp`` can be set."""


def watermark_table(database: str) -> TableId:
    """The table of marks in our database."""
    return TableId(database, TABLE)


def check_form(cursor: Any, table: TableId) -> bool:
    """Whether the table of marks is there; Misconfigured when it is not as we make it."""
    cursor.execute(_COLUMNS, (table.schema, table.name))
    found = {
        (name, kind.lower(), None if size is None else int(size), key)
        for name, kind, size, key in cursor.fetchall()
    }
    if found and found != _FORM:
        raise Misconfigured(
            f"the table of marks {table} is not of the form that Tideline makes",
            hint=f"DROP TABLE {qualified(table)}; it is made anew when the worker starts",
        )
    return bool(found)


def last_clock(cursor: Any, table: TableId, incarnation: str) -> int | None:
    """The server's clock (µs UTC) when the last mark of ``incarnation`` was written; None where the
    table has none."""
    cursor.execute(
        f"SELECT clock_us FROM {qualified(table)} WHERE incarnation = %s",  # noqa: S608
        (incarnation,),
    )
    row = cursor.fetchone()
    return None if row is None else int(row[0])


class WrittenMarks:
    """`Marks` on one connection in autocommit; thread-safe, as high marks come from a thread of
    their own."""

    def __init__(self, connection: Any, *, incarnation: str, database: str) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._incarnation = incarnation
        self._table = watermark_table(database)
        self._write = _WRITE.format(table=qualified(self._table), clock=CLOCK)

    def write(self, kind: MarkKind, token: str) -> None:
        """See `Marks.write`."""
        try:
            with self._lock, self._connection.cursor() as cursor:
                cursor.execute(self._write, (self._incarnation, kind.value, token))
        except pymysql.Error as error:
            if error.args and error.args[0] in _CHANGED:
                raise Unavailable(
                    f"the table of marks {self._table} is gone or altered: error {error.args[0]}"
                ) from None
            raise query_failed(error) from None

    def begin(self, cursor: Any) -> None:
        """See `Marks.begin`: any snapshot taken now is younger than the mark's commit."""
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def shown(self, cursor: Any, token: str) -> tuple[tuple[str, int], ...]:
        """See `Marks.shown`."""
        cursor.execute(
            f"SELECT incarnation, token FROM {qualified(self._table)} WHERE incarnation LIKE %s",  # noqa: S608
            (f"{self._incarnation}{LANE}%",),
        )
        found = [(row[0], row[1]) for row in cursor.fetchall()]
        texts = [(_text(lane).partition(LANE)[2], _text(last)) for lane, last in found]
        return tuple(
            (lane, int(last.rpartition(".")[2]))
            for lane, last in texts
            if last.startswith(f"{token}.")
        )

    def check(self, cursor: Any) -> None:
        """See `Marks.check`."""
        check_form(cursor, self._table)

    def close(self) -> None:
        self._connection.close()


def parse_mark(row: dict[str, Any], incarnation: str) -> Mark | None:
    """The mark in a row of our table, by column name, if it is one of this incarnation."""
    kinds = {kind.value: kind for kind in MarkKind}
    owner, lane, _ = str(row.get("incarnation")).partition(LANE)
    if owner != incarnation or row.get("kind") not in kinds:
        return None
    if bool(lane) != (row["kind"] == MarkKind.PULSE.value):
        return None
    return Mark(kinds[row["kind"]], str(row["token"]), int(row["clock_us"]))


def _text(value: str | bytes) -> str:
    """A session may have its texts as the server stores them."""
    return value.decode() if isinstance(value, bytes) else value
