"""Row messages of one relation, in bulk, into a record batch of a part's shape.

No row object is ever built: `tuples` turns the messages into one array of texts per column,
`types` turns each into typed values, and here they are put together with Tideline's own columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tideline.contract.errors import InvariantBroken
from tideline.contract.schema import TableSchema
from tideline.contract.types import LogicalType
from tideline_capture.arrow_types import (
    BEFORE_PREFIX,
    UTC_MICROSECONDS,
    overflow_maps,
    part_schema,
    unchanged_lists,
)
from tideline_capture.core.events import WHOLE_ROW
from tideline_capture.sources.postgres.replication.tuples import (
    DELETE,
    INSERT,
    UPDATE,
    Bytes,
    Texts,
    split_tuples,
)
from tideline_capture.sources.postgres.replication.tuples_plain import split_tuples_plainly
from tideline_capture.sources.postgres.types import to_arrow

Numbers = npt.NDArray[np.int64]

PLAIN_ROWS_MAX = 32
"""Up to here the loop is quicker than the vectorised walk (measured with 12 columns)."""

_OPERATIONS: Bytes = np.zeros(256, np.uint8)
_OPERATIONS[[INSERT, UPDATE, DELETE]] = list(b"cud")


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows in log order, as `arrow_types.part_schema` describes them.

    The optional columns are there only when some row needs them. ``key_overflow`` names the key
    columns of which some value (an old key's included) cannot be told or held in its type: such a
    table cannot be merged by key. ``unchanged_rows``, ``before_rows`` and ``overflow_rows`` count
    rows whose optional column is not NULL, ``image_rows`` those with the row before.
    """

    batch: pa.RecordBatch
    unchanged_rows: int = 0
    before_rows: int = 0
    overflow_rows: int = 0
    key_overflow: tuple[str, ...] = ()
    image_rows: int = 0


def decode_rows(
    payloads: Sequence[bytes],
    schema: TableSchema,
    *,
    seq: Numbers,
    tx: Numbers,
    ts: Numbers,
    image: bool = False,
) -> Decoded:
    """The rows of ``payloads``: I, U and D messages of one relation, in log order.

    The relation's columns are ``schema.columns``, in that order. ``seq``, ``tx`` and ``ts`` (commit
    time, µs since 1970 UTC) have one number per payload. A delete carries its key columns only.
    Raises CorruptData for a message that is not one or has another number of columns; no value
    raises, whatever it is. All payloads together must stay below 2 GiB. ``image``: take the row
    before updates and deletes too, where the log has it; of a table without a key it always must.
    """
    if len(payloads) <= PLAIN_ROWS_MAX:
        return decode_rows_loop(payloads, schema, seq=seq, tx=tx, ts=ts, image=image)
    places = _key_places(schema)
    texts = split_tuples(payloads, len(schema.columns), places, image=image or not places)
    return _assemble(texts, schema, seq=seq, tx=tx, ts=ts)


def decode_rows_loop(
    payloads: Sequence[bytes],
    schema: TableSchema,
    *,
    seq: Numbers,
    tx: Numbers,
    ts: Numbers,
    image: bool = False,
) -> Decoded:
    """The same contract as `decode_rows`, by a plain loop over the values."""
    places = _key_places(schema)
    texts = split_tuples_plainly(payloads, len(schema.columns), places, image=image or not places)
    return _assemble(texts, schema, seq=seq, tx=tx, ts=ts)


def _key_places(schema: TableSchema) -> tuple[int, ...]:
    names = schema.column_names
    return tuple(names.index(name) for name in schema.key)


def _assemble(
    texts: Texts, schema: TableSchema, *, seq: Numbers, tx: Numbers, ts: Numbers
) -> Decoded:
    rows = len(texts.kinds)
    if not rows == len(seq) == len(tx) == len(ts):
        raise InvariantBroken(f"{rows} row messages have {len(seq)} sequence numbers")
    types = _Typed()
    for column, text in zip(schema.columns, texts.columns, strict=True):
        types.add(column.name, text, column.logical)
    before = () if texts.before is None else schema.key
    for name, text in zip(before, texts.before or (), strict=True):
        types.add(BEFORE_PREFIX + name, text, schema.column(name).logical)
    images = _Typed()
    for column, text in zip(schema.columns, texts.image or (), strict=texts.image is not None):
        if column.name not in schema.key:
            images.add(column.name, text, column.logical)
    arrays = [
        pa.array(seq, pa.int64()),
        _operations(texts.kinds),
        pa.array(tx, pa.int64()),
        pa.array(ts, pa.int64()).view(UTC_MICROSECONDS),
        *types.arrays,
        *images.arrays,
    ]
    if texts.imaged is not None:
        arrays.append(pa.array(texts.imaged, mask=~texts.imaged))
    if images.overflow:
        arrays.append(overflow_maps(rows, images.overflow))
    if texts.unchanged is not None:
        arrays.append(unchanged_lists(schema.column_names, texts.unchanged))
    if types.overflow:
        arrays.append(overflow_maps(rows, types.overflow))
    fields = part_schema(
        schema,
        before,
        unchanged=texts.unchanged is not None,
        overflow=bool(types.overflow),
        image=texts.imaged is not None,
        image_overflow=bool(images.overflow),
    )
    return Decoded(
        pa.RecordBatch.from_arrays(arrays, schema=fields),
        unchanged_rows=0 if texts.unchanged is None else int(texts.unchanged.any(axis=1).sum()),
        before_rows=0 if texts.before is None else rows - texts.before[0].null_count,
        overflow_rows=rows - arrays[-1].null_count if types.overflow else 0,
        key_overflow=_untold_keys(schema, texts, types),
        image_rows=0 if texts.imaged is None else int(texts.imaged.sum()),
    )


def _untold_keys(schema: TableSchema, texts: Texts, types: _Typed) -> tuple[str, ...]:
    if not schema.key:
        changed = texts.kinds != INSERT
        told = changed.sum() == (0 if texts.imaged is None else texts.imaged.sum())
        return () if told else (WHOLE_ROW,)
    untold = {name for name in schema.key if {name, BEFORE_PREFIX + name} & types.overflow.keys()}
    names = schema.column_names
    # An old row that was logged by other columns than the key: it would name no row.
    untold |= {name for name in schema.key if texts.columns[names.index(name)].null_count}
    if texts.unchanged is not None:
        untold |= {name for name in schema.key if texts.unchanged[:, names.index(name)].any()}
    return tuple(name for name in schema.key if name in untold)


class _Typed:
    """Columns as they become typed, with what did not fit by column name."""

    def __init__(self) -> None:
        self.arrays: list[pa.Array] = []
        self.overflow: dict[str, pa.StringArray] = {}

    def add(self, name: str, text: pa.BinaryArray, logical: LogicalType) -> None:
        converted = to_arrow(text, logical)
        self.arrays.append(converted.values)
        if converted.overflow is not None:
            self.overflow[name] = converted.overflow


def _operations(kinds: Bytes) -> pa.StringArray:
    """``c``, ``u`` and ``d`` as strings: one byte each, so the offsets are 0, 1, 2 …"""
    offsets = np.arange(len(kinds) + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(kinds), [None, pa.py_buffer(offsets), pa.py_buffer(_OPERATIONS[kinds])]
    )
