"""Copies of tables without a key: one SELECT in one snapshot, taken piece by piece.

The server waits while nobody reads. The order of the first chunk's statements is that of `chunks`;
around the taking of the snapshot pulses are written (`pulses`), and the snapshot itself says which
of them it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import pymysql

from tideline.contract.errors import InvariantBroken
from tideline_capture.core.events import Chunk, ChunkFailed, ChunkOrder, ChunkRead
from tideline_capture.sources.mysql.catalog.tables import CatalogTable
from tideline_capture.sources.mysql.snapshot.chunk_query import whole_table
from tideline_capture.sources.mysql.snapshot.pulses import Pulses
from tideline_capture.sources.mysql.snapshot.row_chunk import NOTHING_RUNNING, Fetched, batch_of
from tideline_capture.sources.mysql.snapshot.row_packets import RowStream
from tideline_capture.sources.streams import Streams

GONE = "the snapshot that the table was copied from is gone"


@dataclass(frozen=True, slots=True)
class Copies:
    """What tables without a key are copied through: the open snapshots, on connections that
    ``connect`` makes; ``pulses`` writes those around a chunk, None where nothing may be written."""

    streams: Streams[SnapshotCopy]
    connect: Callable[[], Any]
    pulses: Callable[[str], AbstractContextManager[Pulses]] | None


class SnapshotCopy:
    """One open snapshot of one table; ``connection`` is its own, inside the transaction."""

    def __init__(
        self, connection: Any, table: CatalogTable, pulses: tuple[tuple[str, int], ...]
    ) -> None:
        self.table = table
        self._connection = connection
        self._pulses = pulses
        self._stream: RowStream | None = None
        self._rows = 0

    def close(self) -> None:
        with suppress(pymysql.Error, OSError):
            self._connection._force_close()

    def opened(self, order: ChunkOrder) -> CopyChunk:
        """The first chunk: no rows, but the snapshot."""
        schema = self.table.facts.schema
        complete = schema is None or bool(schema.key)  # Then it is no table of this kind any more.
        behind = (order.token, "0")
        return CopyChunk(order, self.table, None, behind, complete, self._pulses)

    def read(self, order: ChunkOrder) -> CopyChunk:
        """The rows behind ``order.after_key``: the snapshot's token, and how many were read."""
        token, count = order.after_key or ("", "")
        if count != str(self._rows):
            raise InvariantBroken(f"a copy of {order.table} stands elsewhere than its dump")
        if self._stream is None:
            query = whole_table(self.table.table)
            self._stream = RowStream(self._connection, query, bytes_max=order.bytes_max)
        rows, ended = self._stream.take()
        self._rows += len(rows)
        fetched = Fetched(rows, len(self.table.table.columns), None)
        behind = (token, str(self._rows))
        return CopyChunk(order, self.table, fetched, behind, ended, self._pulses)


@dataclass(frozen=True, slots=True)
class CopyChunk:
    """A `FetchedChunk` of a table without a key."""

    order: ChunkOrder
    table: CatalogTable
    fetched: Fetched | None
    behind: tuple[str, ...]
    complete: bool
    pulses: tuple[tuple[str, int], ...]

    @property
    def read(self) -> ChunkRead:
        count = 0 if self.fetched is None else len(self.fetched.rows)
        return ChunkRead(self.order.token, self.behind, self.complete, count)

    def decode(self) -> Chunk:
        """See `FetchedChunk.decode`."""
        facts = self.table.facts
        columns = self.table.table.columns if facts.schema is not None else ()
        batch, overflow = batch_of(columns, self.fetched)
        return Chunk(
            token=self.order.token,
            facts=facts,
            batch=batch,
            overflow_rows=batch.num_rows - batch.column("_tl_overflow").null_count
            if overflow
            else 0,
            key_overflow=(),
            missing=None,
            last_key=self.behind,
            complete=self.complete,
            snapshot=NOTHING_RUNNING,
            rows_estimate=self.table.rows_estimate if self.order.estimate else None,
            pulses=self.pulses,
        )


def snapshot_gone(order: ChunkOrder) -> ChunkFailed:
    """What to say of a chunk whose snapshot is gone."""
    return ChunkFailed(order.token, GONE, None, retry=True, anew=True)
