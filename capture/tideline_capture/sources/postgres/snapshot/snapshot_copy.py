"""Copies of tables without a key: COPY by ranges of pages, all in one snapshot.

The order of the first chunk's statements is its correctness, as in `chunks`: lock, snapshot,
catalog. How many pages there are is looked at after that, so every row that the snapshot shows lies
in one of them. The transaction stays open until the last page was read; pages are read in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg2
import pyarrow as pa

from tideline.contract.errors import InvariantBroken
from tideline.contract.schema import TableSchema
from tideline_capture.arrow_types import OVERFLOW, overflowed_columns
from tideline_capture.core.events import Chunk, ChunkFailed, ChunkOrder, ChunkRead, Snapshot
from tideline_capture.sources.postgres.catalog.tables import CatalogTable
from tideline_capture.sources.postgres.names import quoted
from tideline_capture.sources.postgres.snapshot.copy import chunk_from_csv
from tideline_capture.sources.postgres.watermarks import take_snapshot

GONE = "the snapshot that the table was copied from is gone"
_FIRST_PAGES = 64

_LEAVES = """
WITH RECURSIVE tree(member) AS (
  SELECT %s::oid
  UNION ALL SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.member
  WHERE EXISTS (SELECT FROM pg_catalog.pg_class p WHERE p.oid = t.member AND p.relkind = 'p')
)
SELECT n.nspname, c.relname, pg_catalog.pg_relation_size(c.oid)
       / pg_catalog.current_setting('block_size')::bigint
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.member
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind <> 'p' ORDER BY c.oid
"""


class Sink:
    """Takes COPY's rows; past ``bytes_max`` the rest is counted as cut off."""

    def __init__(self, bytes_max: int | None) -> None:
        self.rows: list[bytes] = []
        self.bytes = 0
        self.cut = False
        self._bytes_max = bytes_max

    def write(self, row: bytes) -> None:
        if self._bytes_max is not None and self.bytes >= self._bytes_max:
            self.cut = True
            return
        self.rows.append(row)
        self.bytes += len(row)

    def read(self, size: int = -1) -> bytes:
        """Never called; psycopg2 asks that a file has it."""
        return b""


class SnapshotCopy:
    """One open snapshot of one table; ``connection`` is its own, inside the transaction."""

    def __init__(self, connection: Any, table: CatalogTable, snapshot: Snapshot) -> None:
        self.table = table
        self.snapshot = snapshot
        self._connection = connection
        self._pages_max = _FIRST_PAGES
        with connection.cursor() as cursor:
            cursor.execute(_LEAVES, (table.facts.oid,))
            self._leaves = [
                (f"{quoted(schema)}.{quoted(name)}", int(pages))
                for schema, name, pages in cursor.fetchall()
            ]

    def close(self) -> None:
        with suppress(psycopg2.Error):
            self._connection.close()

    def opened(self, order: ChunkOrder) -> SnapshotChunk:
        """The first chunk: no rows, but the snapshot."""
        schema = self.table.facts.schema
        complete = schema is None or bool(schema.key)  # Then it is no table of this kind any more.
        behind = (order.token, "0", "0")
        return SnapshotChunk(order, self.table, self.snapshot, [], behind, complete)

    def read(self, order: ChunkOrder) -> SnapshotChunk:
        """The rows behind ``order.after_key``: the snapshot's token, leaf and page."""
        schema = self.table.facts.schema
        if schema is None:
            raise InvariantBroken(f"a copy of {order.table}, which has no schema")
        token, at_leaf, at_page = order.after_key or ("", "0", "0")
        leaf, page = int(at_leaf), int(at_page)
        rows: list[bytes] = []
        size = 0
        # Empty pages, and leaves, cost no chunk of their own.
        while leaf < len(self._leaves) and not rows:
            name, pages = self._leaves[leaf]
            if page >= pages:
                leaf, page = leaf + 1, 0
                continue
            sink, page = self._pages(name, page, pages, order, schema)
            rows, size = sink.rows, sink.bytes
        self._adapt(order, len(rows), size)
        while leaf < len(self._leaves) and page >= self._leaves[leaf][1]:
            leaf, page = leaf + 1, 0
        behind = (token, str(leaf), str(page))
        done = leaf >= len(self._leaves)
        return SnapshotChunk(order, self.table, self.snapshot, rows, behind, done)

    def _pages(
        self, name: str, page: int, pages: int, order: ChunkOrder, schema: TableSchema
    ) -> tuple[Sink, int]:
        """The rows from ``page`` on, and the first page behind them."""
        columns = ", ".join(f"t.{quoted(one)}" for one in schema.column_names)
        while True:
            end = min(pages, page + self._pages_max)
            sink = Sink(order.bytes_max if end > page + 1 else None)
            select = f"SELECT {columns} FROM ONLY {name} t"  # noqa: S608
            where = f"t.ctid >= '({page},0)' AND t.ctid < '({end},0)'"
            with self._connection.cursor() as cursor:
                cursor.copy_expert(f"COPY ({select} WHERE {where}) TO STDOUT (FORMAT csv)", sink)
            if not sink.cut:
                return sink, end
            self._pages_max = max(1, self._pages_max // 2)

    def _adapt(self, order: ChunkOrder, rows: int, size: int) -> None:
        """About as many pages the next time as fill a chunk."""
        if rows * 2 <= order.rows_max and size * 2 <= order.bytes_max:
            self._pages_max *= 2
        elif rows > order.rows_max:
            self._pages_max = max(1, self._pages_max // 2)


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A `FetchedChunk` of a table without a key."""

    order: ChunkOrder
    table: CatalogTable
    snapshot: Snapshot
    rows: list[bytes]
    behind: tuple[str, ...]
    complete: bool

    @property
    def read(self) -> ChunkRead:
        return ChunkRead(self.order.token, self.behind, self.complete, len(self.rows))

    def decode(self) -> Chunk:
        """See `FetchedChunk.decode`."""
        facts = self.table.facts
        columns = () if facts.schema is None else facts.schema.columns
        batch: pa.RecordBatch = chunk_from_csv(b"".join(self.rows), columns)
        overflow = overflowed_columns(batch)
        return Chunk(
            token=self.order.token,
            facts=facts,
            batch=batch,
            overflow_rows=batch.num_rows - batch.column(OVERFLOW).null_count if overflow else 0,
            key_overflow=(),
            missing=None,
            last_key=self.behind,
            complete=self.complete,
            snapshot=self.snapshot,
            rows_estimate=self.table.rows_estimate if self.order.estimate else None,
        )


def begin_snapshot(
    connection: Any, name: str, lock_timeout_s: float, look: Callable[[Any], CatalogTable | None]
) -> SnapshotCopy | None:
    """Take hold of the table, then a snapshot, then look at the catalog; None: it is gone."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute(f"SET LOCAL lock_timeout = {round(lock_timeout_s * 1000)}")
        cursor.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
        snapshot = take_snapshot(cursor)
        table = look(cursor)
    return None if table is None else SnapshotCopy(connection, table, snapshot)


def snapshot_gone(order: ChunkOrder) -> ChunkFailed:
    return ChunkFailed(order.token, GONE, None, retry=True, anew=True)
