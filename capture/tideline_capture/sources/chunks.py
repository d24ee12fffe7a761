"""Reads chunks between two watermarks: the order of the steps, which is the same at every source.

The order makes a chunk correct. The low watermark is written and committed before anything is read.
Then a transaction takes hold of the table, takes its snapshot and looks at the catalog, so that the
rows have the columns that the catalog shows. The high watermark is written only when the core has
the decoded rows. How a snapshot is made to show all that the log has before the low watermark
differs by source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from tideline.contract.schema import TableSchema
from tideline.programs.points import OnPoint
from tideline_capture.arrow_types import overflowed_columns
from tideline_capture.core.chunks import Chunk, ChunkFailed, ChunkOrder, ChunkRead
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot, TableFacts
from tideline_capture.sources.decoded import no_rows
from tideline_capture.sources.streams import Streams

GONE = "the table is gone"
_COPY_GONE = "the snapshot that the table was copied from is gone"


class ChunkTable(Protocol):
    """The catalog's description of a chunk's table, read in the chunk's own transaction."""

    @property
    def facts(self) -> TableFacts: ...

    @property
    def rows_estimate(self) -> int | None: ...


class SentRows(Protocol):
    """Rows as a source sent them; ``cut``: some more would not have fitted into a chunk's bytes."""

    @property
    def cut(self) -> bool: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TypedChunk:
    """A chunk's rows as its table's columns. ``missing``: the requested keys without a row."""

    batch: pa.RecordBatch
    missing: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class SourceChunk:
    """A `FetchedChunk` of any source. ``order`` is what was actually requested, ``rows`` how many
    were read; ``convert`` types them, and is None where nothing was read."""

    order: ChunkOrder
    table: ChunkTable
    snapshot: Snapshot
    rows: int
    last_key: tuple[str, ...] | None
    complete: bool
    convert: Callable[[], TypedChunk] | None
    probes: tuple[tuple[str, int], ...] | None = None

    @property
    def read(self) -> ChunkRead:
        return ChunkRead(self.order.token, self.last_key, self.complete, self.rows)

    def decode(self) -> Chunk:
        """See `FetchedChunk.decode`."""
        order, facts = self.order, self.table.facts
        schema = facts.schema
        columns, key = (schema.columns, schema.key) if schema else ((), ())
        typed = TypedChunk(no_rows(columns)) if self.convert is None else self.convert()
        batch, overflow = typed.batch, overflowed_columns(typed.batch)
        return Chunk(
            token=order.token,
            facts=facts,
            batch=batch,
            key_overflow=tuple(name for name in key if name in overflow),
            missing=typed.missing,
            last_key=self.last_key,
            complete=self.complete,
            snapshot=self.snapshot,
            rows_estimate=self.table.rows_estimate if order.estimate else None,
            keys_read=len(order.keys or ()),
            probes=self.probes,
        )


class TableCopy(Protocol):
    """An open snapshot of one table without a key, on a separate connection."""

    def opened(self, order: ChunkOrder) -> SourceChunk:
        """Return the first chunk: no rows, but the snapshot (`opened_copy`)."""

    def read(self, order: ChunkOrder) -> SourceChunk:
        """Return the rows behind ``order.after_key``: the token of the chunk that took the
        snapshot, and how far it was read."""

    def close(self) -> None: ...


def opened_copy(
    order: ChunkOrder,
    table: ChunkTable,
    snapshot: Snapshot,
    begin: tuple[str, ...],
    probes: tuple[tuple[str, int], ...] | None = None,
) -> SourceChunk:
    """Return the first chunk of a copy that is read from ``begin`` on. A table that has a key by
    now, or can no longer be captured, is not copied: the core learns that from the catalog's
    description."""
    schema = table.facts.schema
    complete = schema is None or bool(schema.key)
    return SourceChunk(order, table, snapshot, 0, (order.token, *begin), complete, None, probes)


def is_last(asked: ChunkOrder, rows: SentRows) -> bool:
    """Return whether nothing of what was requested lies behind ``rows``."""
    if asked.boundary_only:
        return not len(rows)
    return asked.keys is not None or (len(rows) < asked.rows_max and not rows.cut)


TableT = TypeVar("TableT", bound=ChunkTable)
RowsT = TypeVar("RowsT", bound=SentRows)
CopyT = TypeVar("CopyT", bound=TableCopy)


class WatermarkedChunkReader(ABC, Generic[TableT, CopyT]):
    """A `ChunkReader` whose steps a source fills in. ``copies``: the open snapshots of tables
    without a key; None where such tables are not read."""

    errors: ClassVar[type[Exception]]
    """The driver's exception for a statement that fails."""

    def __init__(self, copies: Streams[CopyT] | None, on_point: OnPoint) -> None:
        self.on_point = on_point
        self._copies = copies
        self._rows_fit: dict[str, int] = {}

    @abstractmethod
    def write_watermark(self, kind: WatermarkKind, token: str) -> None:
        """Write a watermark, in its own transaction."""

    @abstractmethod
    def read(self, order: ChunkOrder) -> SourceChunk | ChunkFailed:
        """Take hold of the table, then a snapshot, then look at the catalog, then `select`."""

    @abstractmethod
    def send(
        self, order: ChunkOrder, table: TableT, schema: TableSchema, snapshot: Snapshot
    ) -> SourceChunk | ChunkFailed:
        """Return the rows of a table that has a key, `within_bytes`. ``schema`` is the table's."""

    @abstractmethod
    def begin_copy(self, order: ChunkOrder) -> CopyT | ChunkFailed:
        """Open the snapshot of a table without a key, in the order of `read`."""

    @abstractmethod
    def refused(
        self, order: ChunkOrder, error: Exception, on_waiting: Callable[[str | None], None]
    ) -> ChunkFailed:
        """Translate a failed statement into the failure of the chunk's request. The server's
        text may hold values: it is left out. Raises Unavailable when it is the connection that
        failed."""

    def pass_fence(self, on_waiting: Callable[[str | None], None]) -> str | None:
        """Wait until transactions older than the low watermark have ended; return what blocked that
        for too long, or None. Does nothing where the log's order is that of visibility."""
        return None

    def fetch(
        self, order: ChunkOrder, on_waiting: Callable[[str | None], None]
    ) -> SourceChunk | ChunkFailed:
        """See `ChunkReader.fetch`."""
        try:
            self.write_watermark(WatermarkKind.LOW, order.token)
            self.on_point("after-low")
            blocked = self.pass_fence(on_waiting) if order.fence else None
            if blocked is not None:
                return ChunkFailed(order.token, blocked, None, retry=True)
            if order.keyless and self._copies is not None:
                return self._copy(order, self._copies)
            return self.read(order)
        except self.errors as error:
            return self.refused(order, error, on_waiting)

    def write_high(self, order: ChunkOrder) -> None:
        """See `ChunkReader.write_high`."""
        self.write_watermark(WatermarkKind.HIGH, order.token)

    def close(self) -> None:
        if self._copies is not None:
            self._copies.close()

    def select(
        self, order: ChunkOrder, table: TableT, snapshot: Snapshot
    ) -> SourceChunk | ChunkFailed:
        """Return the chunk of a table that the transaction has hold of."""
        schema = table.facts.schema
        if schema is None or not schema.key:
            # Only what the catalog says matters: the core restarts the dump, or quarantines it.
            return SourceChunk(order, table, snapshot, 0, None, True, None)
        if order.time is not None and order.time.column not in schema.column_names:
            error = f"{order.table} has no column {order.time.column!r}"
            return ChunkFailed(order.token, error, None, retry=False)
        return self.send(order, table, schema, snapshot)

    def within_bytes(
        self,
        order: ChunkOrder,
        ask: Callable[[ChunkOrder], RowsT],
        first_guess: Callable[[], int],
        keys_max: int | None = None,
    ) -> tuple[ChunkOrder, RowsT]:
        """Return the rows that ``ask`` gets, with what was actually requested.

        Rows above the chunk's bytes are read and sent in vain, so about as many rows are requested
        as were kept the last time; ``first_guess`` is for the first time. Given keys have no order
        to continue in: fewer of them are read then (``keys_max`` at most), and all of their rows.
        """
        fit = self._rows_fit.get(order.table) or first_guess()
        asked = order if order.boundary_only else replace(order, rows_max=min(order.rows_max, fit))
        if asked.keys is not None and keys_max is not None:
            asked = replace(asked, keys=asked.keys[: min(keys_max, fit)])
        while True:
            rows = ask(asked)
            if asked.keys is None or not rows.cut:
                break
            asked = replace(asked, keys=asked.keys[: max(1, len(asked.keys) // 2)])
        if asked.keys is None and not asked.boundary_only:
            grown = max(fit, 2 * asked.rows_max)
            self._rows_fit[order.table] = max(1, len(rows)) if rows.cut else grown
        return asked, rows

    def _copy(self, order: ChunkOrder, copies: Streams[CopyT]) -> SourceChunk | ChunkFailed:
        """Return a chunk of a table without a key: take a snapshot, or read on in it."""
        if order.after_key is not None:
            token = order.after_key[0]
            found: CopyT | ChunkFailed | None = copies.take(order.table, token)
        else:
            token = order.token
            found = self.begin_copy(order)
        if found is None:
            return ChunkFailed(order.token, _COPY_GONE, None, retry=True, restart=True)
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
            copies.put(order.table, token, found)
        return chunk
