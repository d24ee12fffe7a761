"""Shapes a chunk's rows as those of a part."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.part import DELETED, DUMPED, LOG_COLUMNS, OVERFLOW, UNCHANGED, PartCounts
from tideline.contract.schema import TableSchema
from tideline_capture.core.events import Rows
from tideline_capture.core.snapshots.window import Settled


def dump_rows(
    schema: TableSchema, chunk: pa.RecordBatch, settled: Settled, *, first_seq: int, ts_us: int
) -> list[Rows]:
    """Return the chunk's whole rows, then its partial ones, sequenced from ``first_seq``; op
    ``r``."""
    whole = chunk.filter(settled.whole)
    emitted = []
    if whole.num_rows:
        emitted.append(_rows(schema, whole, DUMPED, first_seq=first_seq, ts_us=ts_us))
    if settled.partial:
        first = first_seq + whole.num_rows
        emitted.append(_partial_rows(schema, chunk, settled, first_seq=first, ts_us=ts_us))
    return emitted


def missing_rows(
    schema: TableSchema, keys: pa.RecordBatch, *, first_seq: int, ts_us: int
) -> list[Rows]:
    """Return deletes of requested keys that the source no longer has; op ``d``."""
    if not keys.num_rows:
        return []
    columns = [
        keys.column(column.name)
        if column.name in schema.key
        else pa.nulls(keys.num_rows, _type_of(keys, column.name))
        for column in schema.columns
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=list(schema.column_names))
    return [_rows(schema, batch, DELETED, first_seq=first_seq, ts_us=ts_us)]


def _type_of(batch: pa.RecordBatch, name: str) -> pa.DataType:
    return batch.schema.field(name).type if name in batch.schema.names else pa.null()


def _rows(
    schema: TableSchema, batch: pa.RecordBatch, op: str, *, first_seq: int, ts_us: int
) -> Rows:
    count = batch.num_rows
    names = [*LOG_COLUMNS, *batch.schema.names]
    columns = [
        pa.array(np.arange(first_seq, first_seq + count, dtype=np.int64)),
        pa.array([op], pa.string()).take(pa.array(np.zeros(count, np.int32))),
        pa.array(np.zeros(count, np.int64)),
        pa.array(np.full(count, ts_us, np.int64)).cast(pa.timestamp("us", "UTC")),
        *batch.columns,
    ]
    overflow = 0
    if OVERFLOW in batch.schema.names:
        overflow = count - batch.column(OVERFLOW).null_count
    shaped = pa.RecordBatch.from_arrays(columns, names=names)
    return Rows(schema, shaped, PartCounts(overflow_rows=overflow))


def _partial_rows(
    schema: TableSchema, chunk: pa.RecordBatch, settled: Settled, *, first_seq: int, ts_us: int
) -> Rows:
    """Return rows with only what no event supplied; `_tl_unchanged` lists the other columns."""
    indices = pa.array([index for index, _ in settled.partial], pa.int64())
    absent = [frozenset(columns) for _, columns in settled.partial]
    taken = chunk.take(indices)
    columns = [_keep(taken.column(name), name, absent) for name in taken.schema.names]
    batch = pa.RecordBatch.from_arrays(columns, names=taken.schema.names)
    rows = _rows(schema, batch, DUMPED, first_seq=first_seq, ts_us=ts_us)
    unchanged = pa.array([list(names) for _, names in settled.partial], pa.list_(pa.string()))
    return Rows(
        schema,
        rows.batch.append_column(UNCHANGED, unchanged),
        msgspec.structs.replace(rows.counts, unchanged_rows=len(absent)),
    )


def _keep(column: pa.Array, name: str, absent: Sequence[frozenset[str]]) -> pa.Array:
    if name == OVERFLOW:
        values = [
            None if not value else [(key, text) for key, text in value if key not in gone] or None
            for value, gone in zip(column.to_pylist(), absent, strict=True)
        ]
        return pa.array(values, column.type)
    carried = pa.array([name not in gone for gone in absent], pa.bool_())
    return pc.if_else(carried, column, pa.scalar(None, column.type))
