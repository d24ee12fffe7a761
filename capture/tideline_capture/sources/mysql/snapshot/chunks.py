"""Chunks: one SELECT between two watermarks, in a transaction that first takes hold of the table.

The order of a chunk's statements makes it correct. The low watermark is written and committed, and
XA transactions that are being committed are waited for (`PreparedTransactions`). Then a transaction
takes its snapshot, and reads nothing from the table, which keeps every DDL of it waiting until the
transaction ends: so the catalog then describes the rows as they are. (A DDL between snapshot and
that is an error of the server's, 1412, or stands in the log behind the low watermark.) On MySQL the
log has transactions in the order in which they became visible only while ``binlog_order_commits``
is ON, which is checked for each chunk. There is nothing to wait for, so `ChunkOrder.fence` asks for
nothing, and a chunk's snapshot is empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pymysql
from pymysql.constants import ER

from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.schema import TableSchema, parse_table
from tideline.programs.points import OnPoint, pass_by
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot
from tideline_capture.sources.chunks import GONE, SourceChunk, WatermarkedChunkReader, is_last
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.mysql.catalog.problems import Policy
from tideline_capture.sources.mysql.catalog.tables import Flavour, MysqlCatalogTable, read_tables
from tideline_capture.sources.mysql.catalog.watch import EVERYTHING
from tideline_capture.sources.mysql.connect import query_failed
from tideline_capture.sources.mysql.names import qualified
from tideline_capture.sources.mysql.snapshot.chunk_errors import (
    ends_connection,
    failure_of,
    number_of,
)
from tideline_capture.sources.mysql.snapshot.chunk_query import MysqlChunkQuery
from tideline_capture.sources.mysql.snapshot.prepared import PreparedTransactions
from tideline_capture.sources.mysql.snapshot.probes import ProbeWriters
from tideline_capture.sources.mysql.snapshot.row_chunk import typed_rows
from tideline_capture.sources.mysql.snapshot.row_packets import RowPackets, read_rows
from tideline_capture.sources.mysql.snapshot.snapshot_copy import StatementCopy
from tideline_capture.sources.mysql.types.literals import NotAValue
from tideline_capture.sources.mysql.watermark_writer import WatermarkWriter
from tideline_capture.sources.streams import Streams

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
"""The server's time limit for our next read in a table that is read by one statement."""
_ORDERED = "SELECT @@GLOBAL.binlog_order_commits"

_UNSEEN_COMMITS = (
    "XA transactions are used here, and the user may not see which are being committed; on this"
    " version of MySQL a read can miss one that the log has"
)
_NO_TEXT = 1300
"""ER_INVALID_CHARACTER_STRING."""


@dataclass(frozen=True, slots=True)
class CopyAccess:
    """The access for copies of tables without a key: connections that ``connect`` makes, and
    ``probes`` that are written around a chunk, None where nothing may be written."""

    connect: Callable[[], Any]
    probes: Callable[[str], AbstractContextManager[ProbeWriters]] | None


class RowChunkReader(WatermarkedChunkReader[MysqlCatalogTable, StatementCopy]):
    """A `ChunkReader`. ``reads`` is a connection as `connect.connect` makes it. ``holds_xa``: the
    log's XA transactions are captured."""

    errors = pymysql.Error

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        watermarks: WatermarkWriter,
        reads: Any,
        *,
        flavour: Flavour,
        lock_timeout_s: float,
        cascades: Policy = "refuse",
        holds_xa: bool = True,
        on_point: OnPoint = pass_by,
        key_configurations: KeyConfigurations = default_key,
        copies: Streams[StatementCopy] | None = None,
        access: CopyAccess | None = None,
    ) -> None:
        super().__init__(copies, on_point)
        self._watermarks = watermarks
        self._writing = threading.Lock()
        """Low and high watermarks are written by two threads, on the one connection of the
        watermarks."""
        self._reads = reads
        self._flavour = flavour
        self._cascades = cascades
        self._prepared = PreparedTransactions(reads) if holds_xa else None
        self._session = _SESSION.format(lock_timeout_s=max(1, round(lock_timeout_s)))
        self._key_configurations = key_configurations
        self._access = access

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """See `WatermarkedChunkReader.write_watermark`."""
        with self._writing:
            self._watermarks.write(kind, token)

    def close(self) -> None:
        self._watermarks.close()
        self._reads.close()
        super().close()

    def begin_copy(self, order: ChunkOrder) -> StatementCopy | ChunkFailed:
        """See `WatermarkedChunkReader.begin_copy`."""
        if self._access is None:
            raise InvariantBroken("a reader that makes no connections was to copy a table")
        held: MysqlCatalogTable | ChunkFailed | None
        connection = self._access.connect()
        try:
            with connection.cursor() as cursor, self._reads.cursor() as asking:
                cursor.execute(f"{self._session}, net_write_timeout = {_PATIENCE_S:d}")
                held = self._unsettled(asking, order)
                if held is None:
                    shown = self._begin_between_probes(cursor, order, self._access)
                    held = self._take_hold(cursor, order)
        except BaseException:
            connection._force_close()
            raise
        if isinstance(held, ChunkFailed):
            connection.close()
            return held
        return StatementCopy(connection, held, shown)

    def _unsettled(self, cursor: Any, order: ChunkOrder) -> ChunkFailed | None:
        """Wait for XA transactions that are being committed; return the failure of a chunk that
        could miss one."""
        if self._prepared is None or self._prepared.settle(cursor):
            return None
        hint = f"GRANT XA_RECOVER_ADMIN ON *.* TO {_account(self._reads)}"
        return ChunkFailed(order.token, _UNSEEN_COMMITS, hint, retry=False)

    def _take_hold(self, cursor: Any, order: ChunkOrder) -> MysqlCatalogTable | ChunkFailed:
        """Keep DDL of the table waiting from here on, the snapshot being taken, and then look at
        the catalog."""
        self.on_point("after-fence")
        self._check_order(cursor)
        table = parse_table(order.table)
        cursor.execute(f"SELECT 1 FROM {qualified(table)} LIMIT 0")  # noqa: S608
        found = read_tables(
            cursor,
            [table],
            flavour=self._flavour,
            cascades=self._cascades,
            key_configurations=self._key_configurations,
        )
        return found[0] if found else ChunkFailed(order.token, GONE, None, retry=False)

    def _begin_between_probes(
        self, cursor: Any, order: ChunkOrder, access: CopyAccess
    ) -> tuple[tuple[str, int], ...]:
        """Begin the transaction; return the probes that its snapshot shows."""
        if access.probes is None:
            self._watermarks.begin(cursor)
            return ()
        with access.probes(order.token) as probes:
            probes.pass_on()
            self._watermarks.begin(cursor)
            shown = self._watermarks.shown(cursor, order.token)
            probes.pass_on()
        return shown

    def read(self, order: ChunkOrder) -> SourceChunk | ChunkFailed:
        """See `WatermarkedChunkReader.read`."""
        with self._reads.cursor() as cursor:
            cursor.execute(self._session)
            failed = self._unsettled(cursor, order)
            if failed is not None:
                return failed
            self._watermarks.begin(cursor)
            try:
                held = self._take_hold(cursor, order)
                if isinstance(held, ChunkFailed):
                    return held
                return self.select(order, held, EVERYTHING)
            finally:
                if self._reads.open:
                    cursor.execute("ROLLBACK")

    def _check_order(self, cursor: Any) -> None:
        if self._flavour != "mysql":
            return  # MariaDB has no other order than that of the log.
        cursor.execute(_ORDERED)
        if cursor.fetchone()[0] != 1:
            raise Misconfigured(
                "binlog_order_commits is OFF: rows of a dump may be older than changes in the log",
                hint="SET GLOBAL binlog_order_commits = ON",
            )

    def send(
        self, order: ChunkOrder, table: MysqlCatalogTable, schema: TableSchema, snapshot: Snapshot
    ) -> SourceChunk | ChunkFailed:
        """See `WatermarkedChunkReader.send`."""
        try:
            MysqlChunkQuery(order, table.table).after()
        except NotAValue:
            return _changed(order, table)
        try:
            return self._rows(order, table)
        except NotAValue:
            what = "a key or time bound is not a value of its column's type"
            return ChunkFailed(order.token, what, None, retry=False)
        except pymysql.Error as error:
            if number_of(error) == _NO_TEXT and order.after_key is not None:
                return _changed(order, table)
            raise

    def _rows(self, order: ChunkOrder, table: MysqlCatalogTable) -> SourceChunk:
        def query_of(asked: ChunkOrder) -> MysqlChunkQuery:
            return MysqlChunkQuery(asked, table.table, table.key_index)

        with self._reads.cursor() as cursor:

            def ask(asked: ChunkOrder) -> RowPackets:
                query = query_of(asked)
                if asked.keys is not None:
                    query.asked()  # Raises NotAValue before anything is sent.
                statement = query.rows(_impossible(cursor, query))
                return read_rows(self._reads, statement, bytes_max=order.bytes_max)

            asked, rows = self.within_bytes(
                order, ask, lambda: self._first_guess(cursor, order, table), KEYS_MAX
            )
        query = query_of(asked)
        keys = None if asked.keys is None else query.asked()
        last_key = query.key_of(rows.last()) if len(rows) else None
        complete = is_last(asked, rows)
        if asked.boundary_only:
            return SourceChunk(asked, table, EVERYTHING, 0, last_key, complete, None)
        convert = partial(typed_rows, table.table.columns, rows, query.width, keys)
        return SourceChunk(asked, table, EVERYTHING, len(rows), last_key, complete, convert)

    def _first_guess(self, cursor: Any, order: ChunkOrder, table: MysqlCatalogTable) -> int:
        """Return how many rows fill the chunk's bytes, by the server's statistics."""
        cursor.execute(_ROW_BYTES, (table.table.table.schema, table.table.table.name))
        row = cursor.fetchone()
        row_bytes = row[0] if row is not None and row[0] else 1
        return max(1, 2 * order.bytes_max // row_bytes)

    def refused(
        self, order: ChunkOrder, error: Exception, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed:
        """See `WatermarkedChunkReader.refused`."""
        if not isinstance(error, pymysql.Error):
            raise error
        if not self._reads.open or ends_connection(error):
            raise query_failed(error) from None
        if number_of(error) == ER.LOCK_WAIT_TIMEOUT:
            on_waiting("another session holds a lock on the table")
        return failure_of(order, error, lambda: _account(self._reads))


def _changed(order: ChunkOrder, table: MysqlCatalogTable) -> SourceChunk:
    """Return an empty chunk: the last key does not fit the table's key as it is now. The catalog's
    description of the key lets the core restart the dump."""
    return SourceChunk(order, table, EVERYTHING, 0, order.after_key, False, None)


def _impossible(cursor: Any, query: MysqlChunkQuery) -> frozenset[tuple[str, str]]:
    """Return the requested texts that no row can have."""
    texts = query.doubtful()
    if not texts:
        return frozenset()
    cursor.execute(query.storable(texts))
    return frozenset(pair for pair, fits in zip(texts, cursor.fetchone(), strict=True) if not fits)


def _account(connection: Any) -> str:
    """Return our account on the server, as an SQL name."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        name, _, host = cursor.fetchone()[0].rpartition("@")
    return f"'{name}'@'{host}'"
