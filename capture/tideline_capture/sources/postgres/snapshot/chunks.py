"""Chunks: COPY between two marks, in a transaction that first takes hold of the table.

The order of a chunk's statements is its correctness. The low mark is written and committed. Then a
transaction locks the table against rewriting DDL *before* it takes its snapshot: an ALTER that
rewrites the table and commits after the snapshot would leave it looking empty. Then come snapshot,
catalog and COPY. All comparisons of keys are made by the database, in the column's own collation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg2
import psycopg2.errorcodes
import psycopg2.errors
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import Unavailable
from tideline.contract.schema import TableSchema, parse_table
from tideline_capture.arrow_types import OVERFLOW, overflowed_columns
from tideline_capture.core.events import (
    Chunk,
    ChunkFailed,
    ChunkOrder,
    ChunkRead,
    MarkKind,
    Snapshot,
)
from tideline_capture.points import OnPoint, pass_by
from tideline_capture.sources.choices import Choices, no_choice
from tideline_capture.sources.mark_key import MarkKey
from tideline_capture.sources.postgres.catalog.tables import CatalogTable, read_tables
from tideline_capture.sources.postgres.catalog.type_names import TypeNames
from tideline_capture.sources.postgres.connect import query_failed
from tideline_capture.sources.postgres.names import pasteable, qualified, quoted
from tideline_capture.sources.postgres.snapshot.chunk_query import ChunkQuery
from tideline_capture.sources.postgres.snapshot.copy import CSV_BYTES_MAX, chunk_from_csv
from tideline_capture.sources.postgres.snapshot.fence import Fence
from tideline_capture.sources.postgres.snapshot.snapshot_copy import (
    SnapshotChunk,
    SnapshotCopy,
    begin_snapshot,
    snapshot_gone,
)
from tideline_capture.sources.postgres.watermarks import take_snapshot, write_mark
from tideline_capture.sources.streams import Streams

csv.field_size_limit(CSV_BYTES_MAX)
"""Python's own limit of 128 KiB per field is below what a text column holds."""

_OID = """
SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""

_HIDES_ROWS = f"SELECT pg_catalog.row_security_active(found.oid) FROM ({_OID}) found"  # noqa: S608

_GONE = "the table is gone"
_PASSING = ("40", "53", "57014")
"""SQLSTATEs of what may go better the next time, on the same connection: a deadlock, a lack of
memory or disk, a cancelled statement."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What tables without a key are copied through: the open snapshots, on connections that
    ``connect`` makes."""

    streams: Streams[SnapshotCopy]
    connect: Callable[[], Any]


class CopyChunkReader:
    """A `ChunkReader`. ``marks`` and ``reads`` are two SQL connections in autocommit."""

    def __init__(  # noqa: PLR0913 - what a reader is made of
        self,
        marks: Any,
        reads: Any,
        *,
        key: MarkKey,
        publication: str,
        lock_timeout_s: float,
        fence_timeout_s: float,
        on_point: OnPoint = pass_by,
        choices: Choices = no_choice,
        copies: Copies | None = None,
    ) -> None:
        self._marks = marks
        self._reads = reads
        self._key = key
        self._publication = publication
        self._lock_timeout_s = lock_timeout_s
        self._fence = Fence(marks, timeout_s=fence_timeout_s)
        self._on_point = on_point
        self._choices = choices
        self._copies = copies
        self._types = TypeNames()
        self._rows_fit: dict[str, int] = {}

    def fetch(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> CopiedChunk | SnapshotChunk | ChunkFailed:
        """See `ChunkReader.fetch`."""
        try:
            with self._marks.cursor() as cursor:
                write_mark(cursor, self._key, MarkKind.LOW, order.token)
            self._on_point("after-low")
            if order.fence:
                blocked = self._fence.pass_(on_waiting)
                if blocked is not None:
                    return ChunkFailed(order.token, blocked, None, retry=True)
                self._on_point("after-fence")
            if order.keyless and self._copies is not None:
                return self._copy_whole(order, self._copies)
            return self._read(order)
        except psycopg2.errors.LockNotAvailable:
            on_waiting("another session holds a lock on the table")
            return ChunkFailed(order.token, "the table is locked", None, retry=True)
        except psycopg2.Error as error:
            if error.pgcode == psycopg2.errorcodes.INSUFFICIENT_PRIVILEGE:
                return self._forbidden(order)
            return _refused(order, error)

    def _forbidden(self, order: ChunkOrder) -> ChunkFailed:
        """The failure of a chunk that the role may not read, or not with all of its rows."""
        table = parse_table(order.table)
        try:
            with self._marks.cursor() as cursor:
                cursor.execute(_HIDES_ROWS, (table.schema, table.name))
                found = cursor.fetchone()
                cursor.execute("SELECT session_user::text")
                role = quoted(cursor.fetchone()[0])
        except psycopg2.Error as error:
            raise query_failed(error) from None
        if found is not None and found[0]:
            what = "row-level security hides rows of the table from the role"
            hint = f"ALTER ROLE {role} BYPASSRLS; -- as a superuser"
        else:
            what = "the role may not read the table"
            hint = f"GRANT SELECT ON {qualified(table)} TO {role};"
        return ChunkFailed(order.token, what, pasteable(hint), retry=False)

    def write_high(self, order: ChunkOrder) -> None:
        """See `ChunkReader.write_high`."""
        try:
            with self._marks.cursor() as cursor:
                write_mark(cursor, self._key, MarkKind.HIGH, order.token)
        except psycopg2.Error as error:
            raise query_failed(error) from None

    def close(self) -> None:
        self._marks.close()
        self._reads.close()
        if self._copies is not None:
            self._copies.streams.close()

    def _copy_whole(self, order: ChunkOrder, copies: Copies) -> SnapshotChunk | ChunkFailed:
        """A chunk of a table without a key: take a snapshot, or read on in it."""
        if order.after_key is not None:
            token = order.after_key[0]
            copy = copies.streams.take(order.table, token)
        else:
            token = order.token
            connection = copies.connect()
            try:
                name = qualified(parse_table(order.table))
                copy = begin_snapshot(connection, name, self._lock_timeout_s, self._finder(order))
            except psycopg2.Error:
                connection.close()
                raise
            if copy is None:
                connection.close()
                return ChunkFailed(order.token, _GONE, None, retry=False)
        if copy is None:
            return snapshot_gone(order)
        try:
            chunk = copy.read(order) if order.after_key else copy.opened(order)
        except BaseException:
            copy.close()
            raise
        if chunk.complete:
            copy.close()
        else:
            copies.streams.put(order.table, token, copy)
        return chunk

    def _finder(self, order: ChunkOrder) -> Callable[[Any], CatalogTable | None]:
        table = parse_table(order.table)

        def find(cursor: Any) -> CatalogTable | None:
            cursor.execute(_OID, (table.schema, table.name))
            found = self._look(cursor, [row[0] for row in cursor.fetchall()])
            return found[0] if found else None

        return find

    def _read(self, order: ChunkOrder) -> CopiedChunk | ChunkFailed:
        table = parse_table(order.table)
        with self._reads.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute(f"SET LOCAL lock_timeout = {round(self._lock_timeout_s * 1000)}")
                cursor.execute(f"LOCK TABLE {qualified(table)} IN ACCESS SHARE MODE")
                snapshot = take_snapshot(cursor)
                cursor.execute(_OID, (table.schema, table.name))
                oids = [row[0] for row in cursor.fetchall()]
                found = self._look(cursor, oids)
                if not found:
                    return ChunkFailed(order.token, _GONE, None, retry=False)
                return self._copy(cursor, order, found[0], snapshot)
            finally:
                if not self._reads.closed:
                    cursor.execute("ROLLBACK")

    def _look(self, cursor: Any, oids: list[int]) -> list[CatalogTable]:
        return read_tables(
            cursor,
            oids,
            publication=self._publication,
            types=self._types,
            choices=self._choices,
        )

    def _copy(
        self, cursor: Any, order: ChunkOrder, table: CatalogTable, snapshot: Snapshot
    ) -> CopiedChunk | ChunkFailed:
        schema = table.facts.schema
        if schema is None or not schema.key:
            # What the catalog says is all that matters: the core begins the dump anew, or parks it.
            return CopiedChunk(order, table, snapshot, _Rows(None), None, complete=True)
        if order.time is not None and order.time.column not in schema.column_names:
            error = f"{order.table} has no column {order.time.column!r}"
            return ChunkFailed(order.token, error, None, retry=False)
        asked, query, rows = self._fetch(cursor, order, table)
        missing = None
        if asked.keys is not None:
            missing = _Rows(None)
            cursor.copy_expert(query.missing(), missing)
        if asked.boundary_only:
            return CopiedChunk(asked, table, snapshot, rows, None, complete=not rows.count)
        complete = asked.keys is not None or (rows.count < asked.rows_max and not rows.cut)
        return CopiedChunk(asked, table, snapshot, rows, missing, complete=complete)

    def _fetch(
        self, cursor: Any, order: ChunkOrder, table: CatalogTable
    ) -> tuple[ChunkOrder, ChunkQuery, _Rows]:
        """The rows, with what was really asked for.

        What lies above the chunk's bytes has been read and sent in vain, so about as many rows are
        asked for as were kept the last time. Given keys have no order to go on in: fewer of them
        are read then, and all of their rows.
        """
        rows_max = min(order.rows_max, self._rows_fit.get(order.table, order.rows_max))
        if order.boundary_only:
            rows_max = order.rows_max
        asked = replace(order, rows_max=rows_max)
        while True:
            query, rows = ChunkQuery(cursor, asked, table), _Rows(order.bytes_max)
            cursor.copy_expert(query.rows(), rows)
            if asked.keys is None or not rows.cut:
                break
            asked = replace(asked, keys=asked.keys[: max(1, len(asked.keys) // 2)])
        if asked.keys is None and not asked.boundary_only:
            self._rows_fit[order.table] = max(1, rows.count) if rows.cut else 2 * rows_max
        return asked, query, rows


@dataclass(frozen=True, slots=True)
class CopiedChunk:
    """A `FetchedChunk`: COPY's bytes. ``order`` is what was really asked for; ``missing`` are the
    asked-for keys that have no row."""

    order: ChunkOrder
    table: CatalogTable
    snapshot: Snapshot
    rows: _Rows
    missing: _Rows | None
    complete: bool

    @property
    def read(self) -> ChunkRead:
        schema = self.table.facts.schema
        last_key = None if schema is None else self._last_key(schema)
        return ChunkRead(self.order.token, last_key, self.complete, self.rows.count)

    def _last_key(self, schema: TableSchema) -> tuple[str, ...] | None:
        names = schema.key if self.order.boundary_only else schema.column_names
        return self.rows.last_key(schema.key, names)

    def decode(self) -> Chunk:
        """See `FetchedChunk.decode`."""
        order, facts = self.order, self.table.facts
        if facts.schema is None:
            empty = pa.RecordBatch.from_arrays([], names=[])
            return Chunk(order.token, facts, empty, 0, (), None, None, True, self.snapshot)
        data = b"" if order.boundary_only else self.rows.data()
        batch = chunk_from_csv(data, facts.schema.columns)
        overflow = overflowed_columns(batch)
        return Chunk(
            token=order.token,
            facts=facts,
            batch=batch,
            overflow_rows=batch.num_rows - batch.column(OVERFLOW).null_count if overflow else 0,
            key_overflow=tuple(name for name in facts.schema.key if name in overflow),
            missing=None if self.missing is None else _held_keys(self.missing, facts.schema),
            last_key=self._last_key(facts.schema),
            complete=self.complete,
            snapshot=self.snapshot,
            rows_estimate=self.table.rows_estimate if order.estimate else None,
            keys_read=len(order.keys or ()),
        )


def _held_keys(rows: _Rows, schema: TableSchema) -> pa.RecordBatch:
    """Keys as the table's types hold them. One that its type cannot hold is in no part, and so
    nowhere to be deleted from."""
    keys = chunk_from_csv(rows.data(), [schema.column(name) for name in schema.key])
    held = pc.is_valid(keys.column(0))
    for name in schema.key[1:]:
        held = pc.and_(held, pc.is_valid(keys.column(name)))
    return keys.filter(held)


class _Rows:
    """Takes COPY's rows, one call each; past ``bytes_max`` the rest is counted as cut off."""

    def __init__(self, bytes_max: int | None) -> None:
        self.count = 0
        self.cut = False
        self._bytes_max = bytes_max
        self._bytes = 0
        self._rows: list[bytes] = []

    def write(self, row: bytes) -> None:
        if self._bytes_max is not None and self._bytes >= self._bytes_max:
            self.cut = True
            return
        self._rows.append(row)
        self._bytes += len(row)
        self.count += 1

    def read(self, size: int = -1) -> bytes:
        """Never called; psycopg2 asks that a file has it."""
        return b""

    def data(self) -> bytes:
        return b"".join(self._rows)

    def last_key(self, key: Sequence[str], names: Sequence[str]) -> tuple[str, ...] | None:
        """The ``key`` of the last row taken, whose columns are ``names``, as the server printed
        it."""
        if not self._rows:
            return None
        record = next(csv.reader(io.StringIO(self._rows[-1].decode(), newline=""), strict=True))
        places = [names.index(name) for name in key]
        return tuple(record[place] for place in places)


def _refused(order: ChunkOrder, error: psycopg2.Error) -> ChunkFailed:
    """What a failed chunk means for its request. The server's text may hold values: left out."""
    code = error.pgcode or ""
    if code.startswith("22"):
        what = "a key or time bound is not a value of its column's type"
        return ChunkFailed(order.token, f"{what} (SQLSTATE {code})", None, retry=False)
    if code in ("42P01", "3F000"):
        return ChunkFailed(order.token, _GONE, None, retry=False)
    retry = code.startswith(_PASSING)
    failed = query_failed(error)
    if isinstance(failed, Unavailable) and not retry:
        raise failed from None
    return ChunkFailed(order.token, f"reading failed (SQLSTATE {code})", None, retry=retry)
