# ruff: noqa: S608  statements are made of constants and our own names
"""The toy as worker and doctor see it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from tests.support.toy_source.database import SCHEMA, Connection, Version
from tests.support.toy_source.log import ToyLogReader, typed
from tests.support.toy_source.section import ToySection, path_of
from tideline.contract.errors import SourceLost, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.patterns import matches
from tideline.contract.position import PostgresPosition, SourceIdentity, SourcePosition
from tideline.contract.schema import TableSchema, parse_table
from tideline.programs.points import OnPoint
from tideline.settings import Settings, SourceSettings
from tideline_capture.arrow_types import arrow_type
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot, SourceLoad, TableFacts
from tideline_capture.sources.base import ChainTail
from tideline_capture.sources.chunks import (
    GONE,
    SourceChunk,
    TableCopy,
    TypedChunk,
    WatermarkedChunkReader,
    is_last,
)
from tideline_capture.sources.finding import Finding, ok
from tideline_capture.sources.rounds import CatalogRounds
from tideline_capture.sources.watermark_key import WatermarkKey

EVERYTHING = Snapshot(0, 0, ())
"""The log's order is that in which transactions become visible."""


def connect(source: SourceSettings) -> Connection:
    """A session of the server that the settings name."""
    path = path_of(source.url.get_secret_value())
    if not path.exists():
        raise Unavailable("the toy is not there")
    return Connection(path, source.section(ToySection).turn_s)


class ToySource:
    """A `Source`."""

    def __init__(self, settings: Settings, on_point: OnPoint) -> None:
        self._settings = settings.source
        self._on_point = on_point

    def _connect(self) -> Connection:
        return connect(self._settings)

    def check(self, chain_end: Callable[[], ChainTail]) -> list[Finding]:
        """See `Preflight.check`."""
        with closing(self._connect()) as connection:
            return [ok("tables", f"{len(connection.versions())} tables can be captured")]

    def check_url(self) -> list[Finding]:
        """See `Preflight.check_url`."""
        return []

    def identity(self) -> SourceIdentity:
        with closing(self._connect()) as connection:
            return SourceIdentity("toy", connection.rows("SELECT id FROM _server")[0][0], 0, "")

    def begin(self) -> PostgresPosition:
        return PostgresPosition(0)

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> SourcePosition:
        """See `Preflight.resume`."""
        if self.identity() != tail.identity:
            raise SourceLost(f"this is another server; the chain is of {tail.identity}")
        if tail.position != self.begin():
            return tail.position
        with closing(self._connect()) as connection:
            return PostgresPosition(connection.rows("SELECT max(id) FROM _log")[0][0] or 0)

    def log_reader(
        self,
        position: SourcePosition,
        key: WatermarkKey,
        captures: Callable[[str], bool],
        prepared: Mapping[str, SourcePosition],
    ) -> ToyLogReader:
        """See `Source.log_reader`."""
        if not isinstance(position, PostgresPosition):
            raise SourceLost(f"{position} is no position of the toy")
        return ToyLogReader(
            self._connect(),
            key,
            position.end_lsn,
            captures,
            lambda table: _is_chosen(self._settings, table),
        )

    def chunk_reader(self, key: WatermarkKey) -> ToyChunkReader:
        return ToyChunkReader(self._connect(), self._connect(), key, self._on_point)

    def watch(self, key: WatermarkKey) -> ToyWatch:
        return ToyWatch(self._connect(), key, self._settings)

    def keep_copies(self, tokens: Collection[str]) -> None:
        """No table is copied in a snapshot: each has a key."""


def _is_chosen(settings: SourceSettings, table: str) -> bool:
    return matches(parse_table(table), settings.tables, settings.exclude)


def _write_mark(connection: Connection, key: WatermarkKey, kind: WatermarkKind, token: str) -> None:
    clock_us = time.time_ns() // 1000
    reported = (kind.value, token, str(clock_us), key.sign(kind, token, clock_us))
    connection.log("mark", reported)


def facts_of(version: Version) -> TableFacts:
    """What the catalog says of a table."""
    return TableFacts(
        table=version.schema.table,
        schema=version.schema,
        oid=version.made,
        storage="",
        columns=tuple(f"{name} {kind}" for name, kind in version.columns),
        members="",
        key_definition=f"{version.made}:id",
        membership="all",
    )


class ToyWatch(CatalogRounds):
    """A `SourceWatch`."""

    def __init__(self, connection: Connection, key: WatermarkKey, settings: SourceSettings) -> None:
        super().__init__(settings.tables)
        self._connection = connection
        self._key = key
        self._settings = settings

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        _write_mark(self._connection, self._key, kind, token)

    def look(self) -> tuple[Snapshot, list[TableFacts]]:
        found = [facts_of(one) for one in self._connection.versions()]
        return EVERYTHING, [one for one in found if _is_chosen(self._settings, one.table)]

    def snapshot(self) -> Snapshot:
        return EVERYTHING

    def load(self, position: SourcePosition, source_time_us: int | None) -> SourceLoad:
        return SourceLoad(clock_us=time.time_ns() // 1000)

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True)
class _ToyTable:
    facts: TableFacts
    rows_estimate: int


@dataclass(frozen=True, slots=True)
class _ToyRows:
    """Rows up to the one that goes beyond a chunk's bytes."""

    rows: Sequence[tuple[Any, ...]]
    cut: bool

    def __len__(self) -> int:
        return len(self.rows)


class ToyChunkReader(WatermarkedChunkReader[_ToyTable, TableCopy]):
    """A `ChunkReader`."""

    errors = sqlite3.Error

    def __init__(
        self, marks: Connection, reads: Connection, key: WatermarkKey, on_point: OnPoint
    ) -> None:
        super().__init__(None, on_point)
        self._marks = marks
        self._reads = reads
        self._key = key

    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        _write_mark(self._marks, self._key, kind, token)

    def begin_copy(self, order: ChunkOrder) -> ChunkFailed:
        return ChunkFailed(order.token, "the toy has no table without a key", None, retry=False)

    def refused(
        self, order: ChunkOrder, error: Exception, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed:
        return ChunkFailed(order.token, f"reading failed ({type(error).__name__})", None, True)

    def read(self, order: ChunkOrder) -> SourceChunk | ChunkFailed:
        with self._reads.snapshot():
            for one in self._reads.versions():
                facts = facts_of(one)
                if facts.table == order.table:
                    return self.select(order, _ToyTable(facts, 100), EVERYTHING)
        return ChunkFailed(order.token, GONE, None, retry=False)

    def send(
        self, order: ChunkOrder, table: _ToyTable, schema: TableSchema, snapshot: Snapshot
    ) -> SourceChunk:
        def ask(asked: ChunkOrder) -> _ToyRows:
            query, given = _query(asked, schema)
            return _within(self._reads.rows(query, given), order.bytes_max)

        asked, rows = self.within_bytes(order, ask, lambda: order.rows_max)
        place = 0 if asked.boundary_only else schema.column_names.index("id")
        last_key = (str(rows.rows[-1][place]),) if len(rows) else None
        convert = None if asked.boundary_only else partial(_typed, rows, asked, schema)
        complete = is_last(asked, rows)
        return SourceChunk(asked, table, snapshot, len(rows), last_key, complete, convert)

    def close(self) -> None:
        super().close()
        self._marks.close()
        self._reads.close()


def _query(order: ChunkOrder, schema: TableSchema) -> tuple[str, tuple[Any, ...]]:
    name = schema.table.removeprefix(f"{SCHEMA}.")
    columns = "id" if order.boundary_only else ", ".join(schema.column_names)
    conditions: list[tuple[str, Sequence[Any]]] = []
    if order.keys is not None:
        keys = [int(key[0]) for key in order.keys]
        conditions.append((f"id IN ({', '.join('?' * len(keys))})", keys))
    bounds = order.key_range
    if order.after_key is not None:
        conditions.append(("id > ?", [int(order.after_key[0])]))
    elif bounds is not None and bounds.start is not None:
        conditions.append(("id >= ?", [int(bounds.start[0])]))
    if bounds is not None and bounds.end is not None:
        conditions.append(("id < ?", [int(bounds.end[0])]))
    if order.time is not None:
        span = (order.time.start, order.time.end)
        conditions.append((f"{order.time.column} >= ? AND {order.time.column} < ?", span))
    where = " AND ".join(text for text, _ in conditions) or "1"
    given = tuple(value for _, values in conditions for value in values)
    limit = f"LIMIT {order.rows_max}" if order.keys is None else ""
    if order.boundary_only:
        limit = f"LIMIT 1 OFFSET {order.rows_max - 1}"
    return f"SELECT {columns} FROM {name} WHERE {where} ORDER BY id {limit}", given


def _within(rows: Sequence[tuple[Any, ...]], bytes_max: int) -> _ToyRows:
    size = 0
    for at, row in enumerate(rows):
        if size >= bytes_max:
            return _ToyRows(rows[:at], cut=True)
        size += sum(len(str(value)) for value in row)
    return _ToyRows(rows, cut=False)


def _typed(rows: _ToyRows, asked: ChunkOrder, schema: TableSchema) -> TypedChunk:
    arrays = [
        typed([row[at] for row in rows.rows], column).values
        for at, column in enumerate(schema.columns)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(schema.column_names))
    if asked.keys is None:
        return TypedChunk(batch)
    found = set(batch.column("id").to_pylist())
    lacking = [key for key in dict.fromkeys(int(key[0]) for key in asked.keys) if key not in found]
    kind = arrow_type(schema.column("id").logical)
    return TypedChunk(batch, pa.RecordBatch.from_arrays([pa.array(lacking, kind)], names=["id"]))
