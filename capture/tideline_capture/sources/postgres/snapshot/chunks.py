"""Chunks: COPY between two watermarks, in a transaction that first takes hold of the table.

The order of a chunk's statements makes it correct. The low watermark is written and committed. Then
a transaction locks the table against rewriting DDL *before* it takes its snapshot: an ALTER that
rewrites the table and commits after the snapshot would leave it looking empty. Then come snapshot,
catalog and COPY. All comparisons of keys are made by the database, in the column's own collation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg2
import psycopg2.errorcodes
import psycopg2.errors
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import InvariantBroken, Unavailable
from tideline.contract.schema import TableSchema, parse_table
from tideline.programs.points import OnPoint, pass_by
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot
from tideline_capture.sources.chunks import (
    GONE,
    SourceChunk,
    TypedChunk,
    WatermarkedChunkReader,
    is_last,
)
from tideline_capture.sources.key_configuration import KeyConfigurations, default_key
from tideline_capture.sources.postgres.catalog.tables import PostgresCatalogTable, read_tables
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.connect import query_failed, querying
from tideline_capture.sources.postgres.names import pasteable, qualified, quoted
from tideline_capture.sources.postgres.snapshot.chunk_query import PostgresChunkQuery
from tideline_capture.sources.postgres.snapshot.copy import CopiedRows, chunk_from_csv
from tideline_capture.sources.postgres.snapshot.fence import Fence
from tideline_capture.sources.postgres.snapshot.snapshot_copy import (
    BEGIN,
    PageCopy,
    begin_page_copy,
    take_hold,
)
from tideline_capture.sources.postgres.watermarks import write_watermark
from tideline_capture.sources.streams import Streams
from tideline_capture.sources.watermark_key import WatermarkKey

_OID = """
SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""

_HIDES_ROWS = f"SELECT pg_catalog.row_security_active(found.oid) FROM ({_OID}) found"  # noqa: S608

_PASSING = ("40", "53", "57014")
"""SQLSTATEs that may not recur the next time, on the same connection: a deadlock, a lack of memory
or disk, a cancelled statement."""


class CopyChunkReader(WatermarkedChunkReader[PostgresCatalogTable, PageCopy]):
    """A `ChunkReader`. ``watermarks`` and ``reads`` are two SQL connections in autocommit; tables
    without a key are copied on ones that ``connect`` makes."""

    errors = psycopg2.Error

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        watermarks: Any,
        reads: Any,
        *,
        key: WatermarkKey,
        publication: str,
        lock_timeout_s: float,
        fence_timeout_s: float,
        on_point: OnPoint = pass_by,
        key_configurations: KeyConfigurations = default_key,
        copies: Streams[PageCopy] | None = None,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(copies, on_point)
        self._watermarks = watermarks
        self._reads = reads
        self._key = key
        self._publication = publication
        self._lock_timeout_s = lock_timeout_s
        self._fence = Fence(watermarks, timeout_s=fence_timeout_s)
        self._key_configurations = key_configurations
        self._connect = connect
        self._types = TypeNames()

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """See `WatermarkedChunkReader.write_watermark`."""
        with self._watermarks.cursor() as cursor:
            write_watermark(cursor, self._key, kind, token)

    def write_high(self, order: ChunkOrder) -> None:
        """See `ChunkReader.write_high`."""
        with querying():
            super().write_high(order)

    def pass_fence(self, on_waiting: Callable[[str | None], None]) -> str | None:
        """See `WatermarkedChunkReader.pass_fence`."""
        blocked = self._fence.pass_(on_waiting)
        if blocked is None:
            self.on_point("after-fence")
        return blocked

    def refused(
        self, order: ChunkOrder, error: Exception, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed:
        """See `WatermarkedChunkReader.refused`."""
        if isinstance(error, psycopg2.errors.LockNotAvailable):
            on_waiting("another session holds a lock on the table")
            return ChunkFailed(order.token, "the table is locked", None, retry=True)
        if not isinstance(error, psycopg2.Error):
            raise error
        if error.pgcode == psycopg2.errorcodes.INSUFFICIENT_PRIVILEGE:
            return self._forbidden(order)
        return _refused(order, error)

    def _forbidden(self, order: ChunkOrder) -> ChunkFailed:
        """Return the failure of a chunk that the role may not read, or not with all of its rows."""
        table = parse_table(order.table)
        with querying(), self._watermarks.cursor() as cursor:
            cursor.execute(_HIDES_ROWS, (table.schema, table.name))
            found = cursor.fetchone()
            cursor.execute("SELECT session_user::text")
            role = quoted(cursor.fetchone()[0])
        if found is not None and found[0]:
            what = "row-level security hides rows of the table from the role"
            hint = f"ALTER ROLE {role} BYPASSRLS; -- as a superuser"
        else:
            what = "the role may not read the table"
            hint = f"GRANT SELECT ON {qualified(table)} TO {role};"
        return ChunkFailed(order.token, what, pasteable(hint), retry=False)

    def close(self) -> None:
        self._watermarks.close()
        self._reads.close()
        super().close()

    def begin_copy(self, order: ChunkOrder) -> PageCopy | ChunkFailed:
        """See `WatermarkedChunkReader.begin_copy`."""
        if self._connect is None:
            raise InvariantBroken("a reader that makes no connections was to copy a table")
        connection = self._connect()
        try:
            name = qualified(parse_table(order.table))
            find = partial(self._find, order)
            copy = begin_page_copy(connection, name, self._lock_timeout_s, find)
        except psycopg2.Error:
            connection.close()
            raise
        if copy is None:
            connection.close()
            return ChunkFailed(order.token, GONE, None, retry=False)
        return copy

    def read(self, order: ChunkOrder) -> SourceChunk | ChunkFailed:
        """See `WatermarkedChunkReader.read`."""
        name = qualified(parse_table(order.table))
        with self._reads.cursor() as cursor:
            cursor.execute(BEGIN)
            try:
                snapshot = take_hold(cursor, name, self._lock_timeout_s)
                found = self._find(order, cursor)
                if found is None:
                    return ChunkFailed(order.token, GONE, None, retry=False)
                return self.select(order, found, snapshot)
            finally:
                if not self._reads.closed:
                    cursor.execute("ROLLBACK")

    def _find(self, order: ChunkOrder, cursor: Any) -> PostgresCatalogTable | None:
        """Return the catalog's description of the table; None: it is gone."""
        table = parse_table(order.table)
        cursor.execute(_OID, (table.schema, table.name))
        found = read_tables(
            cursor,
            [row[0] for row in cursor.fetchall()],
            publication=self._publication,
            types=self._types,
            key_configurations=self._key_configurations,
        )
        return found[0] if found else None

    def send(
        self,
        order: ChunkOrder,
        table: PostgresCatalogTable,
        schema: TableSchema,
        snapshot: Snapshot,
    ) -> SourceChunk:
        """See `WatermarkedChunkReader.send`."""
        with self._reads.cursor() as cursor:

            def ask(asked: ChunkOrder) -> CopiedRows:
                rows = CopiedRows(order.bytes_max)
                cursor.copy_expert(PostgresChunkQuery(cursor, asked, table).rows(), rows)
                return rows

            asked, rows = self.within_bytes(order, ask, lambda: order.rows_max)
            missing = None
            if asked.keys is not None:
                missing = CopiedRows(None)
                query = PostgresChunkQuery(cursor, asked, table)
                cursor.copy_expert(query.missing(), missing)
        names = schema.key if asked.boundary_only else schema.column_names
        convert = None if asked.boundary_only else partial(_typed, rows, missing, schema)
        return SourceChunk(
            asked,
            table,
            snapshot,
            len(rows),
            rows.last_key(schema.key, names),
            is_last(asked, rows),
            convert,
        )


def _typed(rows: CopiedRows, missing: CopiedRows | None, schema: TableSchema) -> TypedChunk:
    batch = chunk_from_csv(rows.data(), schema.columns)
    return TypedChunk(batch, None if missing is None else _held_keys(missing, schema))


def _held_keys(rows: CopiedRows, schema: TableSchema) -> pa.RecordBatch:
    """Return keys as the table's types hold them. One that its type cannot hold is in no part, and
    so nowhere to be deleted from."""
    keys = chunk_from_csv(rows.data(), [schema.column(name) for name in schema.key])
    held = pc.is_valid(keys.column(0))
    for name in schema.key[1:]:
        held = pc.and_(held, pc.is_valid(keys.column(name)))
    return keys.filter(held)


def _refused(order: ChunkOrder, error: psycopg2.Error) -> ChunkFailed:
    """Return the failure of a chunk's request. The server's text may hold values: it is left
    out."""
    code = error.pgcode or ""
    if code.startswith("22"):
        what = "a key or time bound is not a value of its column's type"
        return ChunkFailed(order.token, f"{what} (SQLSTATE {code})", None, retry=False)
    if code in ("42P01", "3F000"):
        return ChunkFailed(order.token, GONE, None, retry=False)
    retry = code.startswith(_PASSING)
    failed = query_failed(error)
    if isinstance(failed, Unavailable) and not retry:
        raise failed from None
    return ChunkFailed(order.token, f"reading failed (SQLSTATE {code})", None, retry=retry)
