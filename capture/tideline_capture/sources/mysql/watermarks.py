"""Watermarks as rows: one row of a table of ours, changed in its own transaction.

The binlog has them in commit order, and with ``binlog_order_commits = ON`` everything before a
watermark in the log was visible before the watermark was written (MariaDB has no other order).
Every pipeline has one row, by its incarnation; rows of others, and anything else written to the
table, are no watermarks: each carries a signature behind its token (`watermark_key`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pymysql

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.schema import TableId
from tideline_capture.core.events import UnknownWatermark, Watermark, WatermarkKind
from tideline_capture.sources.mysql.connect import query_failed
from tideline_capture.sources.mysql.names import qualified, quoted
from tideline_capture.sources.watermark_key import WatermarkKey

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
"""Variables of the session that writes. A watermark that does not fit its columns is an error,
never another watermark."""

PROBE_ROW = "~"
"""The sign between incarnation and writer, in the rows that probes are written to: one for each
writer."""
PROBE_WRITERS = 3
_BEYOND = 1 << 62
"""A number that no writer comes to."""

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
VALUES (%s, %s, %s, %s)
ON DUPLICATE KEY UPDATE kind = VALUES(kind), token = VALUES(token), clock_us = VALUES(clock_us)
"""
_SIGNED = ":"
"""Between token and signature."""
CLOCK = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
"""The server's clock, µs since 1970 UTC. SYSDATE, as the session's ``timestamp`` can be set."""


def watermark_table(database: str) -> TableId:
    """Return the watermark table in our database."""
    return TableId(database, TABLE)


def check_form(cursor: Any, table: TableId) -> bool:
    """Return whether the watermark table is there; Misconfigured when it is not as we make it."""
    cursor.execute(_COLUMNS, (table.schema, table.name))
    found = {
        (name, kind.lower(), None if size is None else int(size), key)
        for name, kind, size, key in cursor.fetchall()
    }
    if found and found != _FORM:
        raise Misconfigured(
            f"the table of watermarks {table} is not of the form that Tideline makes",
            hint=f"DROP TABLE {qualified(table)}; it is recreated when the worker starts",
        )
    return bool(found)


def make_table(cursor: Any, table: TableId) -> None:
    """Make the watermark table, unless it is there: the user may lack the right to make it."""
    if check_form(cursor, table):
        return
    cursor.execute(CREATE_DATABASE.format(database=quoted(table.schema)))
    cursor.execute(CREATE_TABLE.format(table=qualified(table)))


def last_clock(cursor: Any, table: TableId, incarnation: str) -> int | None:
    """Return the server's clock (µs UTC) when the last watermark of ``incarnation`` was written;
    None where the table has none, or one without a time: by then its owner is unknown."""
    cursor.execute(
        f"SELECT clock_us FROM {qualified(table)} WHERE incarnation = %s",  # noqa: S608
        (incarnation,),
    )
    row = cursor.fetchone()
    return int(row[0]) if row is not None and int(row[0]) > 0 else None


class TableWatermarks:
    """`WatermarkWriter` on one connection in autocommit; thread-safe, as high watermarks come from
    a separate thread."""

    def __init__(
        self, connection: Any, *, key: WatermarkKey, database: str, writer: str = ""
    ) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._key = key
        self._row = f"{key.incarnation}{writer}"
        self._table = watermark_table(database)
        self._write = _WRITE.format(table=qualified(self._table))

    def write(self, kind: WatermarkKind, token: str) -> None:
        """See `WatermarkWriter.write`."""
        try:
            with self._lock, self._connection.cursor() as cursor:
                # Low watermarks, too: they share the row of the others, which `last_clock` reads.
                # A writer's row is separate, and a probe must not take longer.
                clock_us = 0 if kind is WatermarkKind.PROBE else read_clock(cursor)
                signature = self._key.sign(kind, token, clock_us)
                values = (self._row, kind.value, f"{token}{_SIGNED}{signature}", clock_us)
                cursor.execute(self._write, values)
        except pymysql.Error as error:
            if error.args and error.args[0] in _CHANGED:
                raise Unavailable(
                    f"the table of watermarks {self._table} is gone or altered: error"
                    f" {error.args[0]}"
                ) from None
            raise query_failed(error) from None

    def begin(self, cursor: Any) -> None:
        """See `WatermarkWriter.begin`: any snapshot taken now is younger than the watermark's
        commit."""
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def shown(self, cursor: Any, token: str) -> tuple[tuple[str, int], ...]:
        """See `WatermarkWriter.shown`."""
        cursor.execute(
            f"SELECT {', '.join(COLUMNS)} FROM {qualified(self._table)} WHERE incarnation LIKE %s",  # noqa: S608
            (f"{self._row}{PROBE_ROW}%",),
        )
        rows = [dict(zip(COLUMNS, map(_text, row), strict=True)) for row in cursor.fetchall()]
        watermarks = [parse_watermark(row, self._key) for row in rows]
        # A writer whose row is not as we wrote it proves nothing: then no place is known.
        numbers = {str(writer): _BEYOND for writer in range(PROBE_WRITERS)}
        for watermark in watermarks:
            chunk, writer, number = (
                watermark.token.rsplit(".", 2) if isinstance(watermark, Watermark) else ("",) * 3
            )
            if chunk == token:
                numbers[writer] = int(number)
        return tuple(numbers.items())

    def check(self, cursor: Any) -> None:
        """See `WatermarkWriter.check`."""
        check_form(cursor, self._table)

    def close(self) -> None:
        self._connection.close()


def read_clock(cursor: Any) -> int:
    """Return the server's clock, µs since 1970 UTC. Everything committed by then is before a
    watermark that is written now."""
    cursor.execute(f"SELECT {CLOCK}")
    return int(cursor.fetchone()[0])


def parse_watermark(
    row: Mapping[str, Any], key: WatermarkKey
) -> Watermark | UnknownWatermark | None:
    """Return the meaning of a row of our table, by column name: a watermark of this session, a row
    that imitates one of this chain, or (None) nothing of ours. Never raises, whatever is in it."""
    owner, _, writer = str(row.get("incarnation")).partition(PROBE_ROW)
    if owner != key.incarnation:
        return None
    kind, clock = str(row.get("kind")), str(row.get("clock_us"))
    token, _, signature = str(row.get("token")).partition(_SIGNED)
    watermark = key.opened(kind, token, clock, signature)
    # A writer's row has the writer's own probes, and no other row has any.
    rightly = token.split(".")[1:2] == [writer] if kind == WatermarkKind.PROBE.value else not writer
    return UnknownWatermark() if watermark is None or not rightly else watermark


def _text(value: Any) -> str:
    """Return a text: a session may have its texts as the server stores them."""
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
