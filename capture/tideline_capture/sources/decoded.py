"""Typed columns, assembled for every source alike: of a log's rows in the shape of a part, and of a
chunk's as the table's columns.

No row object is ever built. A source turns its messages into one Arrow array per column; what is
common to all sources, Tideline's own columns and the counts over them, is added here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tideline.contract.errors import InvariantBroken
from tideline.contract.part import BEFORE, LOGGED, PartCounts
from tideline.contract.schema import TableSchema
from tideline.contract.types import LogicalType
from tideline_capture.arrow_types import (
    OVERFLOW_FIELD,
    UTC_MICROSECONDS,
    Converted,
    arrow_type,
    overflow_maps,
    part_schema,
    unchanged_lists,
)
from tideline_capture.core.events import WHOLE_ROW, Int64Array, Rows

INSERT, UPDATE, DELETE = map(ord, LOGGED)
"""The operations of rows, as their byte in ``_tl_op``."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows in log order, as `arrow_types.part_schema` describes them.

    The optional columns are there only when some row needs them. ``key_overflow`` names the key
    columns of which some value (including an old key's) is not known or not held in its type: such
    a table cannot be merged by key.
    """

    rows: Rows
    key_overflow: tuple[str, ...]


class TypedColumns:
    """Columns as they become typed, with the values that did not fit by column name."""

    def __init__(self) -> None:
        self.arrays: list[pa.Array] = []
        self.overflow: dict[str, pa.StringArray] = {}

    def add(self, name: str, converted: Converted) -> None:
        """Add the next column."""
        self.arrays.append(converted.values)
        if converted.overflow is not None:
            self.overflow[name] = converted.overflow


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows of one table in log order, column by column.

    ``operations`` has `INSERT`, `UPDATE` or `DELETE` per row. ``columns`` are the table's and
    then, where updates changed the key (``before_rows`` of them), the key's before that, named with
    `BEFORE`. ``images`` are the columns but the key's of the rows before, where ``imaged``
    says that there is one; None without any. ``unchanged`` marks, shape (rows, columns), values
    that the log did not carry; None when it carried all.
    """

    operations: npt.NDArray[np.uint8]
    columns: TypedColumns
    before_rows: int = 0
    images: TypedColumns = field(default_factory=TypedColumns)
    imaged: npt.NDArray[np.bool_] | None = None
    unchanged: npt.NDArray[np.bool_] | None = None


def assemble(
    rows: TypedRows, schema: TableSchema, *, seq: Int64Array, tx: Int64Array, ts: Int64Array
) -> Decoded:
    """Return the rows of ``schema`` in the shape of a part.

    ``seq``, ``tx`` and ``ts`` (commit time, µs since 1970 UTC) have one number per row.
    """
    count = len(rows.operations)
    if not count == len(seq) == len(tx) == len(ts):
        raise InvariantBroken(f"{count} rows have {len(seq)} sequence numbers")
    columns, images = rows.columns, rows.images
    arrays = [
        pa.array(seq, pa.int64()),
        _operations(rows.operations),
        pa.array(tx, pa.int64()),
        pa.array(ts, pa.int64()).view(UTC_MICROSECONDS),
        *columns.arrays,
        *images.arrays,
    ]
    if rows.imaged is not None:
        arrays.append(pa.array(rows.imaged, mask=~rows.imaged))
    if images.overflow:
        arrays.append(overflow_maps(count, images.overflow))
    if rows.unchanged is not None:
        arrays.append(unchanged_lists(schema.column_names, rows.unchanged))
    if columns.overflow:
        arrays.append(overflow_maps(count, columns.overflow))
    fields = part_schema(
        schema,
        schema.key if len(columns.arrays) > len(schema.columns) else (),
        unchanged=rows.unchanged is not None,
        overflow=bool(columns.overflow),
        image=rows.imaged is not None,
        image_overflow=bool(images.overflow),
    )
    counts = PartCounts(
        unchanged_rows=0 if rows.unchanged is None else int(rows.unchanged.any(axis=1).sum()),
        before_rows=rows.before_rows,
        overflow_rows=count - arrays[-1].null_count if columns.overflow else 0,
        before_image_rows=0 if rows.imaged is None else int(rows.imaged.sum()),
    )
    batch = pa.RecordBatch.from_arrays(arrays, schema=fields)
    return Decoded(Rows(schema, batch, counts), _unknown_keys(rows, schema))


def _unknown_keys(rows: TypedRows, schema: TableSchema) -> tuple[str, ...]:
    """Return the key columns of which some value is not there: it is NULL, does not fit its type,
    was not carried, or belongs to an old row that was logged by other columns than the key's."""
    if not schema.key:
        changed = rows.operations != INSERT
        known = changed.sum() == (0 if rows.imaged is None else rows.imaged.sum())
        return () if known else (WHOLE_ROW,)
    names, overflow = schema.column_names, rows.columns.overflow.keys()
    unknown = {name for name in schema.key if {name, BEFORE + name} & overflow}
    unknown |= {name for name in schema.key if rows.columns.arrays[names.index(name)].null_count}
    if rows.unchanged is not None:
        unknown |= {name for name in schema.key if rows.unchanged[:, names.index(name)].any()}
    return tuple(name for name in schema.key if name in unknown)


def _operations(codes: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Return operations as strings: one byte each, so the offsets are 0, 1, 2 …"""
    offsets = np.arange(len(codes) + 1, dtype=np.int32)
    codes = np.ascontiguousarray(codes)
    return pa.Array.from_buffers(
        pa.string(), len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(codes)]
    )


class ChunkColumn(Protocol):
    """A column of a chunk's table, as any source describes it."""

    @property
    def name(self) -> str: ...

    @property
    def logical(self) -> LogicalType: ...


def chunk_batch(columns: Sequence[ChunkColumn], converted: Sequence[Converted]) -> pa.RecordBatch:
    """Return a chunk's rows, an array for each of ``columns``; texts that did not fit follow in
    `OVERFLOW`, if there are any."""
    fields = [pa.field(column.name, arrow_type(column.logical)) for column in columns]
    arrays = [one.values for one in converted]
    pairs = zip(columns, converted, strict=True)
    texts = {column.name: one.overflow for column, one in pairs if one.overflow is not None}
    if texts:
        fields.append(OVERFLOW_FIELD)
        arrays.append(overflow_maps(len(arrays[0]), texts))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def no_rows(columns: Sequence[ChunkColumn]) -> pa.RecordBatch:
    """Return a chunk of ``columns`` without any row."""
    empty = [Converted(pa.array([], arrow_type(one.logical))) for one in columns]
    return chunk_batch(columns, empty)
