"""Logical types as Arrow types, and the shape of a part's record batch.

A part has Tideline's own columns first, then the table's, then those that only some rows need: the
key before an update changed it, the row before an update or delete where a table's settings ask for
that, the names of columns the log did not carry, and the text of values that their type cannot
hold. No value is lost: what is NULL in a typed column was NULL at the source, or is named in one of
the last two.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.part import (
    BEFORE,
    IMAGE,
    IMAGE_OVERFLOW,
    LOG_COLUMNS,
    OVERFLOW,
    UNCHANGED,
)
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind, LogicalType

UTC_MICROSECONDS = pa.timestamp("us", "UTC")
OWN_FIELDS = tuple(
    map(pa.field, LOG_COLUMNS, (pa.int64(), pa.string(), pa.int64(), UTC_MICROSECONDS))
)
UNCHANGED_FIELD = pa.field(UNCHANGED, pa.list_(pa.string()))
OVERFLOW_FIELD = pa.field(OVERFLOW, pa.map_(pa.string(), pa.string()))
IMAGE_FIELD = pa.field(IMAGE, pa.bool_())
IMAGE_OVERFLOW_FIELD = pa.field(IMAGE_OVERFLOW, pa.map_(pa.string(), pa.string()))

_ARROW: Mapping[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: UTC_MICROSECONDS,
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Typed values, and the texts that did not fit (None: all fitted); both as long as the input.

    ``values`` is NULL where the source's value is NULL or ``overflow`` holds a text.
    """

    values: pa.Array
    overflow: pa.StringArray | None = None


def arrow_type(logical: LogicalType) -> pa.DataType:
    """Return the Arrow type of a column of this logical type."""
    if logical.kind is Kind.DECIMAL:
        return pa.decimal128(logical.precision, logical.scale)
    return _ARROW[logical.kind]


@functools.lru_cache(maxsize=1024)
def part_schema(
    schema: TableSchema,
    before: tuple[str, ...] = (),
    *,
    unchanged: bool,
    overflow: bool,
    image: bool = False,
    image_overflow: bool = False,
) -> pa.Schema:
    """Return the Arrow schema of rows of ``schema``.

    ``before`` names the key columns that have a ``_tl_before_`` column; the flags say whether
    ``_tl_unchanged`` and ``_tl_overflow`` are there. ``image``: the other columns have one too, and
    ``_tl_image`` is true where they hold the row before; ``image_overflow``: with the texts of what
    did not fit there. All fields are nullable.
    """
    fields = [*OWN_FIELDS]
    fields += [pa.field(column.name, arrow_type(column.logical)) for column in schema.columns]
    fields += _before_fields(schema, before)
    if image:
        fields += [*_before_fields(schema, image_columns(schema)), IMAGE_FIELD]
    if image_overflow:
        fields.append(IMAGE_OVERFLOW_FIELD)
    if unchanged:
        fields.append(UNCHANGED_FIELD)
    if overflow:
        fields.append(OVERFLOW_FIELD)
    return pa.schema(fields)


def image_columns(schema: TableSchema) -> tuple[str, ...]:
    """Return the columns of an image of the row before.

    Key columns are not among them: ``_tl_before_`` columns hold their old values where they
    changed, and the row itself elsewhere.
    """
    return tuple(name for name in schema.column_names if name not in schema.key)


def _before_fields(schema: TableSchema, names: tuple[str, ...]) -> list[pa.Field]:
    return [pa.field(BEFORE + name, arrow_type(schema.column(name).logical)) for name in names]


def unchanged_lists(names: Sequence[str], marks: np.ndarray) -> pa.ListArray:
    """Build ``_tl_unchanged``: per row the names that are marked, NULL where none is.

    ``marks`` is boolean, of shape (rows, names).
    """
    counts = marks.sum(axis=1)
    picked = pa.array(np.nonzero(marks)[1].astype(np.int32))
    values = pa.array(names, pa.string()).take(picked)
    return pa.ListArray.from_arrays(
        _offsets(counts), values, type=UNCHANGED_FIELD.type, mask=pa.array(counts == 0)
    )


def overflow_maps(rows: int, texts: Mapping[str, pa.StringArray]) -> pa.MapArray:
    """Build ``_tl_overflow``: per row column name → text, NULL where no column overflowed.

    ``texts`` holds per column a string array of ``rows`` values, NULL where nothing overflowed.
    """
    held = {name: np.nonzero(pc.is_valid(text).to_numpy(False))[0] for name, text in texts.items()}
    where = np.concatenate([*held.values()])
    order = np.argsort(where, kind="stable")
    column = np.repeat(np.arange(len(held), dtype=np.int32), [len(at) for at in held.values()])
    values = pa.concat_arrays([text.drop_null() for text in texts.values()])
    counts = np.bincount(where, minlength=rows)
    return pa.MapArray.from_arrays(
        _offsets(counts),
        pa.array(list(held), pa.string()).take(pa.array(column[order])),
        values.take(pa.array(order)),
        type=OVERFLOW_FIELD.type,
        mask=pa.array(counts == 0),
    )


def overflowed_columns(batch: pa.RecordBatch) -> tuple[str, ...]:
    """Return the columns that ``_tl_overflow`` of ``batch`` names, sorted; () when it has none."""
    if batch.schema.get_field_index(OVERFLOW) < 0:
        return ()
    return tuple(sorted(batch.column(OVERFLOW).keys.unique().to_pylist()))


def _offsets(counts: np.ndarray) -> pa.Int32Array:
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
