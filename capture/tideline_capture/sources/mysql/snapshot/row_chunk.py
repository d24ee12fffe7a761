"""The types of a chunk's rows, which need no connection."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tideline_capture.core.snapshots.window import key_text
from tideline_capture.sources.chunks import TypedChunk
from tideline_capture.sources.decoded import chunk_batch
from tideline_capture.sources.mysql.snapshot.row_packets import RowPackets
from tideline_capture.sources.mysql.types.columns import MysqlColumn
from tideline_capture.sources.mysql.types.texts import to_arrow


def typed_rows(
    columns: Sequence[MysqlColumn],
    rows: RowPackets,
    width: int,
    asked: pa.RecordBatch | None = None,
) -> TypedChunk:
    """Return rows of ``width`` values, of which the first are the table's ``columns``; ``asked``
    are the requested keys."""
    raws = rows.columns(width)[: len(columns)]
    converted = [to_arrow(raw, column) for column, raw in zip(columns, raws, strict=True)]
    batch = chunk_batch(columns, converted)
    return TypedChunk(batch, None if asked is None else _missing(asked, batch))


def _missing(asked: pa.RecordBatch, found: pa.RecordBatch) -> pa.RecordBatch:
    """Return the requested keys that no row has exactly: where the database takes another for equal
    (``a`` for ``A``), the row is found, although no row has the requested key any more.

    A key that its type cannot hold is in no part, and so nowhere to be deleted from.
    """
    names = asked.schema.names
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
