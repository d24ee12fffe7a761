"""Row events of one table, in bulk, into a record batch of a part's shape.

No row object is ever built: `images` and `fields` find where each value stands, `values` turns a
column's bytes into typed values, and here they are put together with Tideline's own columns. The
walk comes first, because only it tells how many rows the events hold, and with that which sequence
each has.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.schema import TableSchema
from tideline_capture.arrow_types import (
    BEFORE_PREFIX,
    UTC_MICROSECONDS,
    Converted,
    arrow_type,
    overflow_maps,
    part_schema,
)
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.types.arrays import bytes_array, fixed_texts
from tideline_capture.sources.mysql.types.columns import MysqlTable
from tideline_capture.sources.mysql.types.fields import Field, Fixed, Variable, locate
from tideline_capture.sources.mysql.types.gather import Bytes, Marks, Places
from tideline_capture.sources.mysql.types.images import PADDING, Shape, image_starts
from tideline_capture.sources.mysql.types.values import fixed_values, slot, variable_values

DATA_BYTES_MAX = 2**31 - 16
"""Offsets into the bytes have 32 bits (a single event stays below 1 GiB)."""

INSERT, UPDATE, DELETE = b"cud"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows in log order, as `arrow_types.part_schema` describes them.

    The optional columns are there only when some row needs them. ``key_overflow`` names the key
    columns of which some value (an old key's included) cannot be held in its type: such a table
    cannot be merged by key. ``before_rows`` and ``overflow_rows`` count rows whose optional column
    is not NULL, ``image_rows`` those with the row before.
    """

    batch: pa.RecordBatch
    before_rows: int = 0
    overflow_rows: int = 0
    key_overflow: tuple[str, ...] = ()
    image_rows: int = 0


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
    images: Places
    before: Places

    def to_batch(
        self,
        schema: TableSchema,
        *,
        seq: Int64Array,
        tx: Int64Array,
        ts: Int64Array,
        image: bool = False,
    ) -> Decoded:
        """The rows as a record batch of ``schema``, which is the table's own.

        ``seq``, ``tx`` and ``ts`` (commit time, µs since 1970 UTC) have one number per row. A
        delete carries its key columns only. ``image``: take the row before updates and deletes too;
        of a table without a key it always is. Raises CorruptData for bytes that no server writes.
        """
        rows = len(self.images)
        if not rows == len(seq) == len(tx) == len(ts):
            raise InvariantBroken(f"{rows} rows have {len(seq)} sequence numbers")
        return _Batch(self, schema).assemble(seq, tx, ts, image=image or not schema.key)


def walk_events(
    data: Bytes,
    starts: Int64Array,
    ends: Int64Array,
    kinds: npt.NDArray[np.uint8],
    table: MysqlTable,
) -> Walked:
    """The rows of row events of ``table`` (all of one version of it), in log order.

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
def _shape(table: MysqlTable) -> Shape:
    if not table.columns:
        raise CorruptData(f"table {table.table} has no columns in the binlog")
    return Shape(tuple(slot(column) for column in table.columns))


class _Batch:
    """The columns as they become typed, with what did not fit by column name."""

    def __init__(self, walked: Walked, schema: TableSchema) -> None:
        if schema.column_names != tuple(column.name for column in walked.table.columns):
            raise InvariantBroken(
                f"row images of {schema.table} have other columns than its schema"
            )
        self._walked = walked
        self._schema = schema
        self._key = [schema.column_names.index(name) for name in schema.key]
        self._overflow: dict[str, pa.StringArray] = {}
        self._image_overflow: dict[str, pa.StringArray] = {}

    def assemble(self, seq: Int64Array, tx: Int64Array, ts: Int64Array, *, image: bool) -> Decoded:
        rows = len(seq)
        columns = self._columns()
        before = self._before()
        images = self._image() if image else []
        arrays = [
            pa.array(seq, pa.int64()),
            _operations(self._walked.kinds),
            pa.array(tx, pa.int64()),
            pa.array(ts, pa.int64()).view(UTC_MICROSECONDS),
            *columns,
            *before,
            *images,
        ]
        if self._overflow:
            arrays.append(overflow_maps(rows, self._overflow))
        fields = part_schema(
            self._schema,
            self._schema.key if before else (),
            unchanged=False,
            overflow=bool(self._overflow),
            image=bool(images),
            image_overflow=bool(self._image_overflow),
        )
        return Decoded(
            pa.RecordBatch.from_arrays(arrays, schema=fields),
            before_rows=0 if not before else self._moved,
            overflow_rows=rows - arrays[-1].null_count if self._overflow else 0,
            key_overflow=self._untold_keys(columns),
            image_rows=int((self._walked.kinds != INSERT).sum()) if images else 0,
        )

    def _columns(self) -> list[pa.Array]:
        walked, schema = self._walked, self._schema
        deletes = walked.kinds == DELETE
        some, every = bool(deletes.any()), bool(deletes.all())
        wanted = self._key if some and every else range(len(schema.columns))
        self._fields = locate(walked.data, walked.images, _shape(walked.table), wanted)
        arrays = []
        for place, column in enumerate(schema.columns):
            if place not in self._fields:
                arrays.append(pa.nulls(len(deletes), arrow_type(column.logical)))
                continue
            hidden = deletes if some and not every and place not in self._key else None
            field = self._fields[place]
            arrays.append(self._typed(column.name, place, _hide(field, hidden)))
        return arrays

    def _before(self) -> list[pa.Array]:
        """Per key column its value before the update; empty when no update changed the key."""
        walked = self._walked
        self._moved = 0
        if not len(walked.before):
            return []
        updates = np.nonzero(walked.kinds == UPDATE)[0]
        shape = _shape(walked.table)
        was = locate(walked.data, walked.before, shape, self._key)
        differs: Marks = np.zeros(len(updates), np.bool_)
        for place in self._key:
            now = self._fields[place]
            if len(updates) < len(walked.kinds):
                now = _at_rows(now, updates)
            differs |= _differs(walked.data, was[place], now)
        moved = np.nonzero(differs)[0]
        if not len(moved):
            return []
        self._moved = len(moved)
        source: Places = np.zeros(len(walked.kinds), np.int64)
        absent: Marks = np.ones(len(walked.kinds), np.bool_)
        source[updates[moved]] = np.arange(len(moved))
        absent[updates[moved]] = False
        rows = pa.array(source, mask=absent)
        return [
            self._typed(BEFORE_PREFIX + name, place, _at_rows(was[place], moved), rows)
            for name, place in zip(self._schema.key, self._key, strict=True)
        ]

    def _image(self) -> list[pa.Array]:
        """The columns but the key's before updates and deletes, ``_tl_image`` and, where some value
        does not fit, ``_tl_image_overflow``; empty without such rows."""
        walked, names = self._walked, self._schema.column_names
        changed = walked.kinds != INSERT
        if not changed.any():
            return []
        images = walked.images.copy()
        images[walked.kinds == UPDATE] = walked.before
        wanted = [place for place in range(len(names)) if place not in self._key]
        was = locate(walked.data, images[changed], _shape(walked.table), wanted)
        source = np.cumsum(changed) - 1
        rows = pa.array(source, mask=~changed)
        arrays = []
        for place in wanted:
            values, overflow = self._values(names[place], place, was[place], rows)
            arrays.append(values)
            if overflow is not None:
                self._image_overflow[names[place]] = overflow
        arrays.append(pa.array(changed, mask=~changed))
        if self._image_overflow:
            arrays.append(overflow_maps(len(changed), self._image_overflow))
        return arrays

    def _typed(self, name: str, place: int, field: Field, rows: pa.Array | None = None) -> pa.Array:
        """Values of the column at ``place``, as column ``name``; spread over ``rows``."""
        values, overflow = self._values(name, place, field, rows)
        if overflow is not None:
            self._overflow[name] = overflow
        return values

    def _values(
        self, name: str, place: int, field: Field, rows: pa.Array | None
    ) -> tuple[pa.Array, pa.StringArray | None]:
        converted = _convert(self._walked, place, field)
        if converted.values.type != arrow_type(self._schema.columns[place].logical):
            raise InvariantBroken(
                f"column {name} was decoded as {converted.values.type}, not as "
                f"{self._schema.columns[place].type}"
            )
        values, overflow = converted.values, converted.overflow
        if rows is not None:
            values = values.take(rows)
            overflow = None if overflow is None else overflow.take(rows)
        return values, overflow

    def _untold_keys(self, columns: Sequence[pa.Array]) -> tuple[str, ...]:
        untold = {
            name
            for name, place in zip(self._schema.key, self._key, strict=True)
            if {name, BEFORE_PREFIX + name} & self._overflow.keys() or columns[place].null_count
        }
        return tuple(name for name in self._schema.key if name in untold)


def _convert(walked: Walked, place: int, field: Field) -> Converted:
    column = walked.table.columns[place]
    if isinstance(field, Fixed):
        return fixed_values(field, column)
    return variable_values(walked.data, field, column)


def _hide(field: Field, hidden: Marks | None) -> Field:
    if hidden is None:
        return field
    nulls = hidden if field.nulls is None else field.nulls | hidden
    if isinstance(field, Fixed):
        return Fixed(field.raw, nulls)
    return Variable(field.at, np.where(hidden, 0, field.length), nulls)


def _at_rows(field: Field, rows: Places) -> Field:
    nulls = None if field.nulls is None else field.nulls[rows]
    if isinstance(field, Fixed):
        return Fixed(field.raw[rows], nulls)
    return Variable(field.at[rows], field.length[rows], nulls)


def _differs(data: Bytes, was: Field, now: Field) -> Marks:
    """Where the stored bytes differ; two NULLs do not."""
    differs: Marks
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
    nothing: Marks = np.zeros(len(differs), np.bool_)
    null_before = nothing if was.nulls is None else was.nulls
    null_now = nothing if now.nulls is None else now.nulls
    return np.where(null_before | null_now, null_before != null_now, differs)


def _operations(kinds: npt.NDArray[np.uint8]) -> pa.StringArray:
    """``c``, ``u`` and ``d`` as strings: one byte each, so the offsets are 0, 1, 2 …"""
    return fixed_texts(kinds[:, None], None)
