"""Copies of tables without a key: COPY by ranges of pages, all in one snapshot.

The order of the first chunk's statements makes it correct, as in `chunks`: lock, snapshot, catalog.
The number of pages is read after that, so every row that the snapshot shows lies in one of them.
The transaction stays open until the last page was read; pages are read in order.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg2

from tideline.contract.errors import InvariantBroken
from tideline.contract.schema import TableSchema
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.core.facts import Snapshot
from tideline_capture.sources.chunks import SourceChunk, TypedChunk, opened_copy
from tideline_capture.sources.postgres.catalog.tables import PostgresCatalogTable
from tideline_capture.sources.postgres.names import quoted
from tideline_capture.sources.postgres.snapshot.copy import CopiedRows, chunk_from_csv
from tideline_capture.sources.postgres.watermarks import take_snapshot

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
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


class PageCopy:
    """A `TableCopy`; ``connection`` is inside the snapshot's transaction."""

    def __init__(self, connection: Any, table: PostgresCatalogTable, snapshot: Snapshot) -> None:
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

    def opened(self, order: ChunkOrder) -> SourceChunk:
        """See `TableCopy.opened`."""
        return opened_copy(order, self.table, self.snapshot, ("0", "0"))

    def read(self, order: ChunkOrder) -> SourceChunk:
        """See `TableCopy.read`. The place is a leaf and a page of it."""
        schema = self.table.facts.schema
        if schema is None:
            raise InvariantBroken(f"a copy of {order.table}, which has no schema")
        token, at_leaf, at_page = order.after_key or ("", "0", "0")
        leaf, page = int(at_leaf), int(at_page)
        rows = CopiedRows(None)
        # Empty pages, and leaves, need no separate chunk.
        while leaf < len(self._leaves) and not len(rows):
            name, pages = self._leaves[leaf]
            if page >= pages:
                leaf, page = leaf + 1, 0
                continue
            rows, page = self._pages(name, page, pages, order, schema)
        self._adapt(order, len(rows), rows.bytes)
        while leaf < len(self._leaves) and page >= self._leaves[leaf][1]:
            leaf, page = leaf + 1, 0
        behind = (token, str(leaf), str(page))
        done = leaf >= len(self._leaves)
        convert = partial(_typed, rows, schema)
        return SourceChunk(order, self.table, self.snapshot, len(rows), behind, done, convert)

    def _pages(
        self, name: str, page: int, pages: int, order: ChunkOrder, schema: TableSchema
    ) -> tuple[CopiedRows, int]:
        """Return the rows from ``page`` on, and the first page behind them."""
        columns = ", ".join(f"t.{quoted(one)}" for one in schema.column_names)
        while True:
            end = min(pages, page + self._pages_max)
            rows = CopiedRows(order.bytes_max if end > page + 1 else None)
            select = f"SELECT {columns} FROM ONLY {name} t"  # noqa: S608
            where = f"t.ctid >= '({page},0)' AND t.ctid < '({end},0)'"
            with self._connection.cursor() as cursor:
                cursor.copy_expert(f"COPY ({select} WHERE {where}) TO STDOUT (FORMAT csv)", rows)
            if not rows.cut:
                return rows, end
            self._pages_max = max(1, self._pages_max // 2)

    def _adapt(self, order: ChunkOrder, rows: int, size: int) -> None:
        """Set the number of pages for the next time to about as many as fill a chunk."""
        if rows * 2 <= order.rows_max and size * 2 <= order.bytes_max:
            self._pages_max *= 2
        elif rows > order.rows_max:
            self._pages_max = max(1, self._pages_max // 2)


def _typed(rows: CopiedRows, schema: TableSchema) -> TypedChunk:
    return TypedChunk(chunk_from_csv(rows.data(), schema.columns))


def begin_page_copy(
    connection: Any,
    name: str,
    lock_timeout_s: float,
    look: Callable[[Any], PostgresCatalogTable | None],
) -> PageCopy | None:
    """Take hold of the table, then a snapshot, then look at the catalog; None: it is gone."""
    with connection.cursor() as cursor:
        cursor.execute(BEGIN)
        snapshot = take_hold(cursor, name, lock_timeout_s)
        table = look(cursor)
    return None if table is None else PageCopy(connection, table, snapshot)


def take_hold(cursor: Any, name: str, lock_timeout_s: float) -> Snapshot:
    """Lock the table ``name``, as SQL, against rewriting DDL, and then take the snapshot of the
    transaction that has begun."""
    cursor.execute(f"SET LOCAL lock_timeout = {round(lock_timeout_s * 1000)}")
    cursor.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE")
    return take_snapshot(cursor)
