"""Chunks: COPY between two marks, in a transaction that first takes hold of the table.

The order of a chunk's statements is its correctness. The low mark is written and committed. Then a
transaction locks the table against rewriting DDL *before* it takes its snapshot: an ALTER that
rewrites the table and commits after the snapshot would leave it looking empty. Then come snapshot,
catalog and COPY. All comparisons of keys are made by the database, in the column's own collation.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg2
import psycopg2.errors
import pyarrow as pa
import pyarrow.compute as pc

from capture.arrow_types import overflowed_columns
from capture.core.events import Chunk, ChunkFailed, ChunkOrder, MarkKind, Snapshot
from capture.sources.postgres.catalog import CatalogTable, TypeNames, read_tables
from capture.sources.postgres.connect import query_failed
from capture.sources.postgres.copy import CSV_BYTES_MAX, chunk_from_csv
from capture.sources.postgres.fence import Fence
from capture.sources.postgres.names import qualified, quoted
from capture.sources.postgres.watermarks import take_snapshot, write_mark
from tideline.contract.errors import InvariantBroken, Unavailable
from tideline.contract.schema import TableSchema, parse_table

csv.field_size_limit(CSV_BYTES_MAX)
"""Python's own limit of 128 KiB per field is below what a text column holds."""

_OID = """
SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""

_GREATER = """
SELECT a.attname, s.nspname, o.oprname FROM pg_catalog.pg_attribute a
JOIN LATERAL (
  WITH RECURSIVE base(oid, kind, next) AS (
    SELECT t.oid, t.typtype, t.typbasetype FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
    UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM base b
    JOIN pg_catalog.pg_type t ON t.oid = b.next AND b.kind = 'd')
  SELECT b.oid FROM base b WHERE b.kind <> 'd') base ON true
JOIN pg_catalog.pg_opclass c ON c.opcintype = base.oid AND c.opcdefault
JOIN pg_catalog.pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
JOIN pg_catalog.pg_amop p ON p.amopfamily = c.opcfamily AND p.amopstrategy = 5
  AND p.amoplefttype = c.opcintype AND p.amoprighttype = c.opcintype
JOIN pg_catalog.pg_operator o ON o.oid = p.amopopr
JOIN pg_catalog.pg_namespace s ON s.oid = o.oprnamespace
WHERE a.attrelid = %s AND a.attname = ANY (%s)
"""
"""The operator that ``ORDER BY`` goes by, for key columns whose type has one of its own."""


class CopyChunkReader:
    """A `ChunkReader`. ``marks`` and ``reads`` are two SQL connections in autocommit."""

    def __init__(
        self,
        marks: Any,
        reads: Any,
        *,
        incarnation: str,
        publication: str,
        lock_timeout_s: float,
        fence_timeout_s: float,
    ) -> None:
        self._marks = marks
        self._reads = reads
        self._incarnation = incarnation
        self._publication = publication
        self._lock_timeout_s = lock_timeout_s
        self._fence = Fence(marks, timeout_s=fence_timeout_s)
        self._types = TypeNames()
        self._rows_max: dict[str, int] = {}

    def read(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> Chunk | ChunkFailed:
        """See `ChunkReader.read`."""
        try:
            with self._marks.cursor() as cursor:
                write_mark(cursor, self._incarnation, MarkKind.LOW, order.token)
            if order.fence:
                blocked = self._fence.pass_(on_waiting)
                if blocked is not None:
                    return ChunkFailed(order.token, blocked, None, retry=True)
            return self._read(order)
        except psycopg2.errors.LockNotAvailable:
            on_waiting("another session holds a lock on the table")
            return ChunkFailed(order.token, "the table is locked", None, retry=True)
        except psycopg2.Error as error:
            return _refused(order, error)

    def write_high(self, order: ChunkOrder) -> None:
        """See `ChunkReader.write_high`."""
        try:
            with self._marks.cursor() as cursor:
                write_mark(cursor, self._incarnation, MarkKind.HIGH, order.token)
        except psycopg2.Error as error:
            raise query_failed(error) from None

    def close(self) -> None:
        self._marks.close()
        self._reads.close()

    def _read(self, order: ChunkOrder) -> Chunk | ChunkFailed:
        table = parse_table(order.table)
        with self._reads.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                cursor.execute(f"SET LOCAL lock_timeout = {round(self._lock_timeout_s * 1000)}")
                cursor.execute(f"LOCK TABLE {qualified(table)} IN ACCESS SHARE MODE")
                snapshot = take_snapshot(cursor)
                cursor.execute(_OID, (table.schema, table.name))
                oids = [row[0] for row in cursor.fetchall()]
                found = read_tables(
                    cursor, oids, publication=self._publication, types=self._types
                )
                if not found:
                    return ChunkFailed(order.token, _GONE, None, retry=False)
                return self._copy(cursor, order, found[0], snapshot)
            finally:
                if not self._reads.closed:
                    cursor.execute("ROLLBACK")

    def _copy(
        self, cursor: Any, order: ChunkOrder, table: CatalogTable, snapshot: Snapshot
    ) -> Chunk | ChunkFailed:
        facts = table.facts
        if facts.schema is None:
            empty = pa.RecordBatch.from_arrays([], names=[])
            return Chunk(order.token, facts, empty, 0, (), None, None, True, snapshot)
        schema = facts.schema
        order = replace(order, rows_max=min(order.rows_max, self._rows_fit(order)))
        query = ChunkQuery(cursor, order, table)
        if order.time is not None and not query.has_column(order.time.column):
            error = f"{order.table} has no column {order.time.column!r}"
            return ChunkFailed(order.token, error, None, retry=False)
        rows = _Rows(order.bytes_max)
        cursor.copy_expert(query.rows(), rows)
        while rows.cut and order.keys is not None:
            # Keys have no order to go on in: fewer of them are read, and all of their rows.
            order = replace(order, keys=order.keys[: max(1, len(order.keys) // 2)])
            query, rows = ChunkQuery(cursor, order, table), _Rows(order.bytes_max)
            cursor.copy_expert(query.rows(), rows)
        self._rows_max[order.table] = max(1, rows.count) if rows.cut else 2 * order.rows_max
        batch = chunk_from_csv(rows.data(), schema.columns)
        overflow = overflowed_columns(batch)
        return Chunk(
            token=order.token,
            facts=facts,
            batch=batch,
            overflow_rows=batch.num_rows - batch.column("_tl_overflow").null_count
            if overflow
            else 0,
            key_overflow=tuple(name for name in schema.key if name in overflow),
            missing=self._missing(cursor, query, schema) if order.keys is not None else None,
            last_key=rows.last_key(schema),
            complete=order.keys is not None or (rows.count < order.rows_max and not rows.cut),
            snapshot=snapshot,
            rows_estimate=table.rows_estimate if order.estimate else None,
            keys_read=len(order.keys or ()),
        )

    def _rows_fit(self, order: ChunkOrder) -> int:
        """How many rows to ask for: about as many as were not cut off the last time, for what is
        cut off has been read and sent in vain."""
        return self._rows_max.get(order.table, order.rows_max)

    def _missing(self, cursor: Any, query: ChunkQuery, schema: TableSchema) -> pa.RecordBatch:
        """The asked-for keys that have no row, as the table's types hold them."""
        rows = _Rows(None)
        cursor.copy_expert(query.missing(), rows)
        columns = [schema.column(name) for name in schema.key]
        keys = chunk_from_csv(rows.data(), columns)
        # A key that its type cannot hold is in no part, and so nowhere to be deleted from.
        held = pc.is_valid(keys.column(0))
        for name in schema.key[1:]:
            held = pc.and_(held, pc.is_valid(keys.column(name)))
        return keys.filter(held)


class ChunkQuery:
    """The COPY statements of one chunk. Identifiers are the catalog's, quoted; values literals."""

    def __init__(self, cursor: Any, order: ChunkOrder, table: CatalogTable) -> None:
        schema = table.facts.schema
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        self._cursor = cursor
        self._order = order
        self._oid = table.facts.oid
        self._schema = schema
        self._casts = dict(zip(schema.column_names, table.casts, strict=True))
        self._from = qualified(table.table)

    def has_column(self, name: str) -> bool:
        return name in self._casts

    def rows(self) -> str:
        """The chunk's rows, in key order."""
        key = ", ".join(f"t.{quoted(name)}" for name in self._schema.key)
        columns = ", ".join(f"t.{quoted(name)}" for name in self._schema.column_names)
        if self._order.keys is not None:
            wanted = f"({key}) IN ({self._asked()})"
            select = f"SELECT {columns} FROM {self._from} t WHERE {wanted}"  # noqa: S608
            return f"COPY ({select}) TO STDOUT (FORMAT csv)"
        conditions = self._conditions(key)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        select = f"SELECT {columns} FROM {self._from} t{where} ORDER BY {key}"  # noqa: S608
        return f"COPY ({select} LIMIT {self._order.rows_max:d}) TO STDOUT (FORMAT csv)"

    def missing(self) -> str:
        """The asked-for keys that the table does not hold."""
        names = ", ".join(quoted(name) for name in self._schema.key)
        select = f"SELECT DISTINCT {names} FROM ({self._asked()}) AS asked ({names})"  # noqa: S608
        same = " AND ".join(f"t.{quoted(n)} = asked.{quoted(n)}" for n in self._schema.key)
        absent = f"NOT EXISTS (SELECT FROM {self._from} t WHERE {same})"
        return f"COPY ({select} WHERE {absent}) TO STDOUT (FORMAT csv)"

    def _conditions(self, key: str) -> list[str]:
        order, conditions = self._order, []
        if order.after_key is not None:
            after = ", ".join(
                self._literal(name, value)
                for name, value in zip(self._schema.key, order.after_key, strict=True)
            )
            # A row constructor: PostgreSQL turns it into one index condition.
            conditions.append(f"ROW({key}) {self._greater()} ROW({after})")
        if order.time is not None:
            column = f"t.{quoted(order.time.column)}"
            start = self._literal(order.time.column, order.time.start)
            end = self._literal(order.time.column, order.time.end)
            conditions.append(f"{column} >= {start} AND {column} < {end}")
        return conditions

    def _greater(self) -> str:
        """The keys' ``>``, that of their own order: a plain ``>`` is looked up by name, and for an
        extension's type (citext) finds that of another type, whose order skips rows."""
        self._cursor.execute(_GREATER, (self._oid, list(self._schema.key)))
        own = {name: (space, operator) for name, space, operator in self._cursor.fetchall()}
        chosen = {own.get(name, ("pg_catalog", ">")) for name in self._schema.key}
        if len(chosen) > 1:
            raise Misconfigured(
                f"the key columns of {self._order.table} are ordered by operators of different"
                " schemas, which one comparison cannot name"
            )
        space, operator = chosen.pop()
        return f"OPERATOR({quoted(space)}.{operator})"

    def _asked(self) -> str:
        lines = [
            "("
            + ", ".join(self._literal(n, v) for n, v in zip(self._schema.key, key, strict=True))
            + ")"
            for key in self._order.keys or ()
        ]
        return "VALUES " + ", ".join(lines)

    def _literal(self, column: str, value: str) -> str:
        text = self._cursor.mogrify("%s", (value,)).decode()
        return f"{text}::{self._casts[column]}"


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

    def last_key(self, schema: TableSchema) -> tuple[str, ...] | None:
        """The key of the last row taken, as the server printed it."""
        if not self._rows:
            return None
        record = next(csv.reader(io.StringIO(self._rows[-1].decode(), newline=""), strict=True))
        places = [schema.column_names.index(name) for name in schema.key]
        return tuple(record[place] for place in places)


def _refused(order: ChunkOrder, error: psycopg2.Error) -> ChunkFailed:
    """What a failed chunk means for its request. The server's text may hold values: left out."""
    code = error.pgcode or ""
    if code.startswith("22"):
        what = "a key or time bound is not a value of its column's type"
        return ChunkFailed(order.token, f"{what} (SQLSTATE {code})", None, retry=False)
    if code in ("42P01", "3F000"):
        return ChunkFailed(order.token, _GONE, None, retry=False)
    if code == "42501":
        name = qualified(parse_table(order.table))
        hint = f"GRANT SELECT ON {name} TO the role in source.url"
        return ChunkFailed(order.token, "the role may not read the table", hint, retry=False)
    failed = query_failed(error)
    if isinstance(failed, Unavailable):
        raise failed from None
    retry = code.startswith(("40", "53", "57"))
    return ChunkFailed(order.token, f"reading failed (SQLSTATE {code})", None, retry=retry)
