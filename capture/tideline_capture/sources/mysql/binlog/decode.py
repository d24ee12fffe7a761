"""Row events of one table, in bulk, into a record batch of a part's shape.

No row object is ever built: `images` and `fields` find where each value stands, `values` turns a
column's bytes into typed values, and `decoded` puts them together with Tideline's own columns. The
walk comes first, because only it gives how many rows the events hold, and with that the sequence of
each.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.part import BEFORE
from tideline.contract.schema import TableSchema
from tideline_capture.arrow_types import Converted, arrow_type
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.decoded import (
    DELETE,
    INSERT,
    UPDATE,
    Decoded,
    TypedColumns,
    TypedRows,
    assemble,
)
from tideline_capture.sources.mysql.types.arrays import bytes_array
from tideline_capture.sources.mysql.types.columns import MysqlTable
from tideline_capture.sources.mysql.types.fields import Field, Fixed, Variable, locate
from tideline_capture.sources.mysql.types.gather import Bytes, Mask, Offsets
from tideline_capture.sources.mysql.types.images import PADDING, ImageShape, image_starts
from tideline_capture.sources.mysql.types.values import fixed_values, slot, variable_values

DATA_BYTES_MAX = 2**31 - 16
"""Offsets into the bytes have 32 bits (a single event stays below 1 GiB)."""


@dataclass(frozen=True, slots=True)
class Walked:
    """The rows of some events, found but not yet converted.

    ``rows_per_event``: an update's two images are one row. ``data`` must not change before
    `to_batch` was called.
    """

    rows_per_event: Int64Array
    data: Bytes
    table: MysqlTable
    kinds: npt.NDArray[np.uint8]
    images: Offsets
    before: Offsets

    def to_batch(
        self,
        schema: TableSchema,
        *,
        seq: Int64Array,
        tx: Int64Array,
        ts: Int64Array,
        image: bool = False,
    ) -> Decoded:
        """Return the rows as a record batch of ``schema``, which is the table's own.

        ``seq``, ``tx`` and ``ts`` (commit time, µs since 1970 UTC) have one number per row. A
        delete carries its key columns only. ``image``: take the row before updates and deletes too;
        of a table without a key it always is. Raises CorruptData for bytes that no server writes.
        """
        rows = _Batch(self, schema).rows(image=image or not schema.key)
        return assemble(rows, schema, seq=seq, tx=tx, ts=ts)


def walk_events(
    data: Bytes,
    starts: Int64Array,
    ends: Int64Array,
    kinds: npt.NDArray[np.uint8],
    table: MysqlTable,
) -> Walked:
    """Return the rows of row events of ``table`` (all of one version of it), in log order.

    ``data[starts:ends]`` are the events' row areas, behind the bitmaps of columns, which name all
    of them; ``kinds`` has `INSERT`, `UPDATE` or `DELETE` per event. At least `PADDING` bytes of
    any content lie in ``data`` behind the last end; all of it is below 2 GiB. Raises CorruptData
    for an event whose images do not end where it does, or whose last update has one image only.
    """
    if len(data) > DATA_BYTES_MAX:
        raise InvariantBroken(f"a batch of row events has {len(data)} bytes")
    if len(ends) and int(ends[-1]) + PADDING > len(data):
        raise InvariantBroken("a batch of row events has too few bytes behind its last one")
    images, counts = image_starts(data, starts, ends, _shape(table))
    updates = kinds == UPDATE
    if not updates.any():
        kinds_of_rows = np.repeat(kinds, counts)
        return Walked(counts, data, table, kinds_of_rows, images, images[:0])
    if (counts[updates] & 1).any():
        raise CorruptData("an update of the binlog has one row image only")
    rows = np.where(updates, counts >> 1, counts)
    if updates.all():
        return Walked(rows, data, table, np.repeat(kinds, rows), images[1::2], images[0::2])
    ordinals = np.arange(len(images)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_before = np.repeat(updates, counts) & (ordinals & 1 == 0)
    return Walked(rows, data, table, np.repeat(kinds, rows), images[~is_before], images[is_before])


@functools.lru_cache(maxsize=1024)
def _shape(table: MysqlTable) -> ImageShape:
    if not table.columns:
        raise CorruptData(f"table {table.table} has no columns in the binlog")
    return ImageShape(tuple(slot(column) for column in table.columns))


class _Batch:
    """The columns as they become typed."""

    def __init__(self, walked: Walked, schema: TableSchema) -> None:
        if schema.column_names != tuple(column.name for column in walked.table.columns):
            raise InvariantBroken(
                f"row images of {schema.table} have other columns than its schema"
            )
        self._walked = walked
        self._schema = schema
        self._key = [schema.column_names.index(name) for name in schema.key]
        self._typed = TypedColumns()

    def rows(self, *, image: bool) -> TypedRows:
        self._add_columns()
        moved = self._add_before()
        images, imaged = self._images() if image else (TypedColumns(), None)
        return TypedRows(self._walked.kinds, self._typed, moved, images, imaged)

    def _add_columns(self) -> None:
        walked, schema = self._walked, self._schema
        deletes = walked.kinds == DELETE
        some, every = bool(deletes.any()), bool(deletes.all())
        wanted = self._key if some and every else range(len(schema.columns))
        self._fields = locate(walked.data, walked.images, _shape(walked.table), wanted)
        for place, column in enumerate(schema.columns):
            if place not in self._fields:
                nothing = pa.nulls(len(deletes), arrow_type(column.logical))
                self._typed.add(column.name, Converted(nothing))
                continue
            hidden = deletes if some and not every and place not in self._key else None
            field = _hide(self._fields[place], hidden)
            self._typed.add(column.name, self._values(column.name, place, field))

    def _add_before(self) -> int:
        """Return, per key column, its value before the update, unless no update changed the key;
        and how many did."""
        walked = self._walked
        if not len(walked.before):
            return 0
        updates = np.nonzero(walked.kinds == UPDATE)[0]
        shape = _shape(walked.table)
        was = locate(walked.data, walked.before, shape, self._key)
        differs: Mask = np.zeros(len(updates), np.bool_)
        for place in self._key:
            now = self._fields[place]
            if len(updates) < len(walked.kinds):
                now = _at_rows(now, updates)
            differs |= _differs(walked.data, was[place], now)
        moved = np.nonzero(differs)[0]
        if not len(moved):
            return 0
        source: Offsets = np.zeros(len(walked.kinds), np.int64)
        absent: Mask = np.ones(len(walked.kinds), np.bool_)
        source[updates[moved]] = np.arange(len(moved))
        absent[updates[moved]] = False
        rows = pa.array(source, mask=absent)
        for name, place in zip(self._schema.key, self._key, strict=True):
            values = self._values(name, place, _at_rows(was[place], moved), rows)
            self._typed.add(BEFORE + name, values)
        return len(moved)

    def _images(self) -> tuple[TypedColumns, Mask | None]:
        """Return the columns other than the key's before updates and deletes, and which rows those
        are; None without such rows."""
        walked, names, images = self._walked, self._schema.column_names, TypedColumns()
        changed = walked.kinds != INSERT
        if not changed.any():
            return images, None
        before = walked.images.copy()
        before[walked.kinds == UPDATE] = walked.before
        wanted = [place for place in range(len(names)) if place not in self._key]
        was = locate(walked.data, before[changed], _shape(walked.table), wanted)
        rows = pa.array(np.cumsum(changed) - 1, mask=~changed)
        for place in wanted:
            images.add(names[place], self._values(names[place], place, was[place], rows))
        return images, changed

    def _values(
        self, name: str, place: int, field: Field, rows: pa.Array | None = None
    ) -> Converted:
        """Return values of the column at ``place``, spread over ``rows``."""
        converted = _convert(self._walked, place, field)
        if converted.values.type != arrow_type(self._schema.columns[place].logical):
            raise InvariantBroken(
                f"column {name} was decoded as {converted.values.type}, not as "
                f"{self._schema.columns[place].type}"
            )
        if rows is None:
            return converted
        overflow = converted.overflow
        return Converted(
            converted.values.take(rows), None if overflow is None else overflow.take(rows)
        )


def _convert(walked: Walked, place: int, field: Field) -> Converted:
    column = walked.table.columns[place]
    if isinstance(field, Fixed):
        return fixed_values(field, column)
    return variable_values(walked.data, field, column)


def _hide(field: Field, hidden: Mask | None) -> Field:
    if hidden is None:
        return field
    nulls = hidden if field.nulls is None else field.nulls | hidden
    if isinstance(field, Fixed):
        return Fixed(field.raw, nulls)
    return Variable(field.at, np.where(hidden, 0, field.length), nulls)


def _at_rows(field: Field, rows: Offsets) -> Field:
    nulls = None if field.nulls is None else field.nulls[rows]
    if isinstance(field, Fixed):
        return Fixed(field.raw[rows], nulls)
    return Variable(field.at[rows], field.length[rows], nulls)


def _differs(data: Bytes, was: Field, now: Field) -> Mask:
    """Return where the stored bytes differ; two NULLs do not."""
    differs: Mask
    if isinstance(was, Fixed) and isinstance(now, Fixed):
        differs = np.zeros(len(was.raw), np.bool_)
        for at in range(was.raw.shape[1]):
            differs |= was.raw[:, at] != now.raw[:, at]
    elif isinstance(was, Variable) and isinstance(now, Variable):
        old, new = (
            bytes_array(data, Variable(field.at, field.length, None)) for field in (was, now)
        )
        differs = pc.not_equal(old, new).to_numpy(False)
    else:
        raise InvariantBroken("a column stands in two images in two ways")
    if was.nulls is None and now.nulls is None:
        return differs
    nothing: Mask = np.zeros(len(differs), np.bool_)
    null_before = nothing if was.nulls is None else was.nulls
    null_now = nothing if now.nulls is None else now.nulls
    return np.where(null_before | null_now, null_before != null_now, differs)
