"""A chunk as the server sent it, and its way to Arrow, which needs no connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tideline_capture.arrow_types import OVERFLOW, OVERFLOW_FIELD, arrow_type, overflow_maps
from tideline_capture.core.events import Chunk, ChunkOrder, ChunkRead, Snapshot
from tideline_capture.core.snapshots.window import key_text
from tideline_capture.sources.mysql.catalog.tables import CatalogTable
from tideline_capture.sources.mysql.snapshot.row_packets import RowPackets
from tideline_capture.sources.mysql.types.columns import MysqlColumn
from tideline_capture.sources.mysql.types.texts import to_arrow

NOTHING_RUNNING = Snapshot(0, 0, ())
"""What the log holds before the low mark was visible to the read: there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows of ``width`` values, the table's columns first; ``asked`` are the asked-for keys."""

    rows: RowPackets
    width: int
    asked: pa.RecordBatch | None


@dataclass(frozen=True, slots=True)
class RowChunk:
    """A `FetchedChunk`. ``order`` is what was really asked for; nothing was read of a table that
    cannot be captured, or whose key is another now than the order's."""

    order: ChunkOrder
    table: CatalogTable
    fetched: Fetched | None
    last_key: tuple[str, ...] | None
    complete: bool

    @property
    def read(self) -> ChunkRead:
        count = 0 if self.fetched is None else len(self.fetched.rows)
        return ChunkRead(self.order.token, self.last_key, self.complete, count)

    def decode(self) -> Chunk:
        """See `FetchedChunk.decode`."""
        order, facts = self.order, self.table.facts
        columns = self.table.table.columns if facts.schema is not None else ()
        batch, overflow = batch_of(columns, self.fetched)
        return Chunk(
            token=order.token,
            facts=facts,
            batch=batch,
            overflow_rows=batch.num_rows - batch.column(OVERFLOW).null_count if overflow else 0,
            key_overflow=tuple(name for name in self.table.table.key if name in overflow),
            missing=_missing(self.fetched, batch),
            last_key=self.last_key,
            complete=self.complete,
            snapshot=NOTHING_RUNNING,
            rows_estimate=self.table.rows_estimate if order.estimate else None,
            keys_read=len(order.keys or ()),
        )


def batch_of(
    columns: Sequence[MysqlColumn], fetched: Fetched | None
) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    """The rows as a batch, and the names of columns with values that their type cannot hold."""
    fields = [pa.field(column.name, arrow_type(column.logical)) for column in columns]
    if fetched is None:
        return pa.RecordBatch.from_pylist([], schema=pa.schema(fields)), ()
    arrays, texts = [], {}
    raws = fetched.rows.columns(fetched.width)[: len(columns)]
    for column, raw in zip(columns, raws, strict=True):
        converted = to_arrow(raw, column)
        arrays.append(converted.values)
        if converted.overflow is not None:
            texts[column.name] = converted.overflow
    if texts:
        arrays.append(overflow_maps(len(fetched.rows), texts))
        fields.append(OVERFLOW_FIELD)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), tuple(texts)


def _missing(fetched: Fetched | None, found: pa.RecordBatch) -> pa.RecordBatch | None:
    """The asked-for keys that no row has to the letter: where the database takes another for equal
    (``a`` for ``A``), the row is found, and yet no row has the key any more that was asked for.

    A key that its type cannot hold is in no part, and so nowhere to be deleted from.
    """
    if fetched is None or fetched.asked is None:
        return None
    asked, names = fetched.asked, fetched.asked.schema.names
    held = pa.array([True] * asked.num_rows, pa.bool_())
    for name in names:
        held = pc.and_(held, pc.is_valid(asked.column(name)))
    asked = asked.filter(held)
    keys = key_text(asked, names)
    coded = keys.dictionary_encode()
    first = pc.equal(pc.index_in(coded.dictionary, keys).take(coded.indices), _numbers(len(keys)))
    absent = pc.invert(pc.is_in(keys, value_set=key_text(found, names)))
    return asked.filter(pc.and_(first, absent))


def _numbers(count: int) -> pa.Int32Array:
    return pa.array(range(count), pa.int32())
