"""Chunks: one SELECT between two marks, in a transaction that first takes hold of the table.

The order of a chunk's statements is its correctness. The low mark is written and committed, and XA
transactions that are being committed are waited for (`PreparedTransactions`). Then a transaction
takes its snapshot, and reads nothing from the table, which keeps every DDL of it
waiting until the transaction ends: what the catalog says then is what the rows have. (A DDL between
snapshot and that is an error of the server's, 1412, or stands in the log behind the low mark.)
On MySQL the log has transactions in the order in which they became visible only while
``binlog_order_commits`` is ON, which is looked at for each chunk. There is nothing to wait for, so
`ChunkOrder.fence` asks for nothing, and a chunk's snapshot is empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pymysql
from pymysql.constants import ER

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId, parse_table
from tideline_capture.core.events import ChunkFailed, ChunkOrder, MarkKind
from tideline_capture.points import OnPoint, pass_by
from tideline_capture.sources.choices import Choices, no_choice
from tideline_capture.sources.mysql.catalog.problems import Policy
from tideline_capture.sources.mysql.catalog.tables import CatalogTable, Flavour, read_tables
from tideline_capture.sources.mysql.connect import query_failed
from tideline_capture.sources.mysql.marks import Marks
from tideline_capture.sources.mysql.names import qualified
from tideline_capture.sources.mysql.snapshot.chunk_query import ChunkQuery
from tideline_capture.sources.mysql.snapshot.prepared import PreparedTransactions
from tideline_capture.sources.mysql.snapshot.row_chunk import Fetched, RowChunk
from tideline_capture.sources.mysql.snapshot.row_packets import read_rows
from tideline_capture.sources.mysql.snapshot.snapshot_copy import (
    Copies,
    CopyChunk,
    SnapshotCopy,
    snapshot_gone,
)
from tideline_capture.sources.mysql.types.literals import NotAValue

KEYS_MAX = 1_000
"""Keys of one statement: with many more the servers scan the table instead."""

_ROW_BYTES = """
SELECT AVG_ROW_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_SESSION = (
    "SET SESSION character_set_results = NULL, lock_wait_timeout = {lock_timeout_s:d},"
    " max_sort_length = 65536, sort_buffer_size = 8388608"
)
"""Texts come as they are stored. A key of prefixes is sorted by all of its columns' bytes."""
_PATIENCE_S = 86_400
"""How long a server waits for us to read on in a table that is read by one statement."""
_ORDERED = "SELECT @@GLOBAL.binlog_order_commits"

_GONE = "the table is gone"
_UNSEEN_COMMITS = (
    "XA transactions are used here, and the user may not see which are being committed; on this"
    " version of MySQL a read can miss one that the log has"
)
_NO_TABLE = (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE)
_DENIED = (ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR)
_NO_TEXT = 1300
"""ER_INVALID_CHARACTER_STRING."""
_DAMAGED = (126, 127, 144, 145, 1034, 1194, 1195)
"""What is said of a table that a server left half written when it was killed: those below 1000 are
the storage engine's own. It is repaired when it is opened, or by somebody."""
_PASSING = {
    **dict.fromkeys(_DAMAGED, "the table is damaged, and is to be repaired"),
    1020: "the server takes the rows for changed",
    1021: "the server's disk is full",
    1037: "the server is out of memory",
    1038: "the server is out of memory for sorting",
    1041: "the server is out of memory",
    1205: "the table is locked",
    1213: "a deadlock",
    1317: "the statement was ended by somebody",
    1412: "the table was altered since the snapshot",
    1969: "the statement took longer than the server lets it",
    3024: "the statement took longer than the server lets it",
}
"""What may go better the next time, on the same connection."""
_ENDED = (ER.SERVER_SHUTDOWN, 1927, 3169, 4031)
"""Errors that the server ends a connection with: killed, or unused for too long."""


class RowChunkReader:
    """A `ChunkReader`. ``reads`` is a connection as `connect.connect` makes it. ``holds_xa``: the
    log's XA transactions are captured."""

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        marks: Marks,
        reads: Any,
        *,
        flavour: Flavour,
        lock_timeout_s: float,
        cascades: Policy = "refuse",
        holds_xa: bool = True,
        on_point: OnPoint = pass_by,
        choices: Choices = no_choice,
        copies: Copies | None = None,
    ) -> None:
        self._marks = marks
        self._writing = threading.Lock()
        """Low and high marks are written by two threads, on the one connection of the marks."""
        self._reads = reads
        self._flavour = flavour
        self._cascades = cascades
        self._prepared = PreparedTransactions(reads) if holds_xa else None
        self._session = _SESSION.format(lock_timeout_s=max(1, round(lock_timeout_s)))
        self._on_point = on_point
        self._choices = choices
        self._copies = copies
        self._rows_fit: dict[str, int] = {}

    def fetch(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> RowChunk | CopyChunk | ChunkFailed:
        """See `ChunkReader.fetch`."""
        with self._writing:
            self._marks.write(MarkKind.LOW, order.token)
        self._on_point("after-low")
        try:
            if order.keyless and self._copies is not None:
                return self._copy_whole(order, self._copies)
            return self._read(order)
        except pymysql.Error as error:
            failed = self._refused(order, error)
            if _number(error) == ER.LOCK_WAIT_TIMEOUT:
                on_waiting("another session holds a lock on the table")
            return failed

    def write_high(self, order: ChunkOrder) -> None:
        """See `ChunkReader.write_high`."""
        with self._writing:
            self._marks.write(MarkKind.HIGH, order.token)

    def close(self) -> None:
        self._marks.close()
        self._reads.close()
        if self._copies is not None:
            self._copies.streams.close()

    def _copy_whole(self, order: ChunkOrder, copies: Copies) -> CopyChunk | ChunkFailed:
        """A chunk of a table without a key: take a snapshot, or read on in it."""
        if order.after_key is not None:
            token = order.after_key[0]
            found: SnapshotCopy | ChunkFailed | None = copies.streams.take(order.table, token)
        else:
            token = order.token
            found = self._take_snapshot(order, copies)
        if found is None:
            return snapshot_gone(order)
        if isinstance(found, ChunkFailed):
            return found
        try:
            chunk = found.read(order) if order.after_key else found.opened(order)
        except BaseException:
            found.close()
            raise
        if chunk.complete:
            found.close()
        else:
            copies.streams.put(order.table, token, found)
        return chunk

    def _take_snapshot(self, order: ChunkOrder, copies: Copies) -> SnapshotCopy | ChunkFailed:
        table = parse_table(order.table)
        connection = copies.connect()
        try:
            with connection.cursor() as cursor, self._reads.cursor() as asking:
                cursor.execute(f"{self._session}, net_write_timeout = {_PATIENCE_S:d}")
                if self._prepared is not None and not self._prepared.settle(asking):
                    hint = f"GRANT XA_RECOVER_ADMIN ON *.* TO {_account(self._reads)}"
                    connection.close()
                    return ChunkFailed(order.token, _UNSEEN_COMMITS, hint, retry=False)
                shown = self._begin_between_pulses(cursor, order, copies)
                self._on_point("after-fence")
                self._check_order(cursor)
                cursor.execute(f"SELECT 1 FROM {qualified(table)} LIMIT 0")  # noqa: S608
                found = self._look(cursor, table)
        except BaseException:
            connection._force_close()
            raise
        if not found:
            connection.close()
            return ChunkFailed(order.token, _GONE, None, retry=False)
        return SnapshotCopy(connection, found[0], shown)

    def _begin_between_pulses(
        self, cursor: Any, order: ChunkOrder, copies: Copies
    ) -> tuple[tuple[str, int], ...]:
        """Begin the transaction; the pulses that its snapshot shows."""
        if copies.pulses is None:
            self._marks.begin(cursor)
            return ()
        with copies.pulses(order.token) as pulses:
            pulses.pass_on()
            self._marks.begin(cursor)
            shown = self._marks.shown(cursor, order.token)
            pulses.pass_on()
        return shown

    def _read(self, order: ChunkOrder) -> RowChunk | ChunkFailed:
        table = parse_table(order.table)
        with self._reads.cursor() as cursor:
            cursor.execute(self._session)
            if self._prepared is not None and not self._prepared.settle(cursor):
                hint = f"GRANT XA_RECOVER_ADMIN ON *.* TO {_account(self._reads)}"
                return ChunkFailed(order.token, _UNSEEN_COMMITS, hint, retry=False)
            self._marks.begin(cursor)
            self._on_point("after-fence")
            try:
                self._check_order(cursor)
                cursor.execute(f"SELECT 1 FROM {qualified(table)} LIMIT 0")  # noqa: S608
                found = self._look(cursor, table)
                if not found:
                    return ChunkFailed(order.token, _GONE, None, retry=False)
                return self._select(cursor, order, found[0])
            finally:
                if self._reads.open:
                    cursor.execute("ROLLBACK")

    def _look(self, cursor: Any, table: TableId) -> list[CatalogTable]:
        return read_tables(
            cursor,
            [table],
            flavour=self._flavour,
            cascades=self._cascades,
            choices=self._choices,
        )

    def _check_order(self, cursor: Any) -> None:
        if self._flavour != "mysql":
            return  # MariaDB has no other order than that of the log.
        cursor.execute(_ORDERED)
        if cursor.fetchone()[0] != 1:
            raise Misconfigured(
                "binlog_order_commits is OFF: rows of a dump may be older than changes in the log",
                hint="SET GLOBAL binlog_order_commits = ON",
            )

    def _select(
        self, cursor: Any, order: ChunkOrder, table: CatalogTable
    ) -> RowChunk | ChunkFailed:
        schema = table.facts.schema
        if schema is None or not schema.key:
            # What the catalog says is all that matters: the core begins the dump anew, or parks it.
            return RowChunk(order, table, None, None, complete=True)
        if order.time is not None and order.time.column not in schema.column_names:
            error = f"{order.table} has no column {order.time.column!r}"
            return ChunkFailed(order.token, error, None, retry=False)
        try:
            ChunkQuery(order, table.table).after()
        except NotAValue:
            return _changed(order, table)
        try:
            return self._rows(cursor, order, table)
        except NotAValue:
            what = "a key or time bound is not a value of its column's type"
            return ChunkFailed(order.token, what, None, retry=False)
        except pymysql.Error as error:
            if _number(error) == _NO_TEXT and order.after_key is not None:
                return _changed(order, table)
            raise

    def _rows(self, cursor: Any, order: ChunkOrder, table: CatalogTable) -> RowChunk:
        """The rows, with what was really asked for.

        What lies above the chunk's bytes has been sent in vain, so about as many rows are asked for
        as were kept the last time. Given keys have no order to go on in: fewer of them are read
        then, and all of their rows.
        """
        fit = self._rows_fit.get(order.table) or self._first_guess(cursor, order, table)
        fit = max(fit, order.rows_max) if order.boundary_only else fit
        asked = replace(order, rows_max=min(order.rows_max, fit))
        if asked.keys is not None:
            asked = replace(asked, keys=asked.keys[: min(KEYS_MAX, fit)])
        while True:
            query = ChunkQuery(asked, table.table, table.key_index)
            keys = None if asked.keys is None else query.asked()
            statement = query.rows(_impossible(cursor, query))
            rows = read_rows(self._reads, statement, bytes_max=order.bytes_max)
            if asked.keys is None or not rows.cut:
                break
            asked = replace(asked, keys=asked.keys[: max(1, len(asked.keys) // 2)])
        if asked.keys is None and not asked.boundary_only:
            self._rows_fit[order.table] = (
                max(1, len(rows)) if rows.cut else max(fit, 2 * asked.rows_max)
            )
        complete = asked.keys is not None or (len(rows) < asked.rows_max and not rows.cut)
        last_key = query.key_of(rows.last()) if len(rows) else None
        if asked.boundary_only:
            return RowChunk(asked, table, None, last_key, complete=not len(rows))
        fetched = Fetched(rows, query.width, keys)
        return RowChunk(asked, table, fetched, last_key, complete=complete)

    def _first_guess(self, cursor: Any, order: ChunkOrder, table: CatalogTable) -> int:
        """How many rows fill the chunk's bytes, by the server's statistics."""
        cursor.execute(_ROW_BYTES, (table.table.table.schema, table.table.table.name))
        row = cursor.fetchone()
        row_bytes = row[0] if row is not None and row[0] else 1
        return max(1, 2 * order.bytes_max // row_bytes)

    def _refused(self, order: ChunkOrder, error: pymysql.Error) -> ChunkFailed:
        """What a failed chunk means for its request. The server's text may hold values: left out.

        Raises Unavailable when it is the connection that failed.
        """
        number = _number(error)
        if not self._reads.open or number in _ENDED:
            raise query_failed(error) from None
        if number in _NO_TABLE:
            return ChunkFailed(order.token, _GONE, None, retry=False)
        if number in _DENIED:
            name = qualified(parse_table(order.table))
            hint = f"GRANT SELECT ON {name} TO {_account(self._reads)}"
            return ChunkFailed(order.token, "the user may not read the table", hint, retry=False)
        if number in _PASSING:
            return ChunkFailed(order.token, _PASSING[number], None, retry=True)
        return ChunkFailed(order.token, f"reading failed (error {number})", None, retry=False)


def _changed(order: ChunkOrder, table: CatalogTable) -> RowChunk:
    """Nothing was read: the last key is none of the table's key as it is now. What the catalog says
    of the key lets the core begin the dump anew."""
    return RowChunk(order, table, None, order.after_key, complete=False)


def _impossible(cursor: Any, query: ChunkQuery) -> frozenset[tuple[str, str]]:
    """Asked-for texts that no row can have."""
    texts = query.doubtful()
    if not texts:
        return frozenset()
    cursor.execute(query.storable(texts))
    return frozenset(pair for pair, fits in zip(texts, cursor.fetchone(), strict=True) if not fits)


def _account(connection: Any) -> str:
    """Who we are to the server, as an SQL name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        name, _, host = cursor.fetchone()[0].rpartition("@")
    return f"'{name}'@'{host}'"


def _number(error: pymysql.Error) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0
