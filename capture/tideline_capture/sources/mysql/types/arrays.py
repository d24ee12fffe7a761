"""Numbers and bytes that numpy holds, as Arrow arrays without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.types.fields import Variable
from tideline_capture.sources.mysql.types.gather import Bytes, Mask


def values_array(kind: pa.DataType, values: npt.NDArray[Any], nulls: Mask | None) -> pa.Array:
    """Return ``values`` (rows first) as an array of ``kind``, whose layout they have."""
    held = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(held), [_validity(nulls), pa.py_buffer(held)])


def bytes_array(data: Bytes, field: Variable) -> pa.BinaryArray:
    """Return the bytes of ``field`` as an array; ``data`` must be below 2 GiB.

    ``data`` serves as one binary array of value, gap, value, gap …; every second item is copied.
    """
    rows = len(field.at)
    offsets = np.empty(2 * rows + 1, np.int32)
    offsets[0:-1:2] = field.at
    np.add(field.at, field.length, out=offsets[1::2], casting="unsafe")
    offsets[-1] = offsets[-2] if rows else 0
    alternating = pa.Array.from_buffers(
        pa.binary(), 2 * rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    taken = alternating.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    return taken if field.nulls is None else with_nulls(taken, field.nulls)


def with_nulls(values: pa.Array, nulls: Mask) -> pa.Array:
    """Return ``values``, which has no NULL and begins its buffers, with NULL where ``nulls``."""
    buffers = [_validity(nulls), *values.buffers()[1:]]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def fixed_texts(characters: Bytes, nulls: Mask | None) -> pa.StringArray:
    """Return texts of one length: ``characters``, ASCII, has a row per text."""
    return _fixed(pa.string(), characters, nulls)


def fixed_bytes(stored: Bytes, nulls: Mask | None) -> pa.BinaryArray:
    """Return bytes of one length, a row per value."""
    return _fixed(pa.binary(), stored, nulls)


def texts_of(
    values: npt.NDArray[Any] | pa.Array, text: Callable[[Any], str], nulls: Mask | None
) -> pa.StringArray:
    """Return the text of each value, computed once per distinct value; NULL where ``nulls``."""
    held = values if isinstance(values, pa.Array) else pa.array(values)
    if nulls is not None:
        held = pc.if_else(pa.array(nulls), pa.scalar(None, held.type), held)
    coded = held.dictionary_encode()
    labels = pa.array([text(value) for value in coded.dictionary.to_pylist()], pa.string())
    return labels.take(coded.indices)


def big_endian(raw: Bytes) -> Int64Array:
    """Return the unsigned number in each row of ``raw`` (up to 8 bytes; of 8, its two's
    complement)."""
    return _number(raw, ">")


def little_endian(raw: Bytes) -> Int64Array:
    """Return the unsigned number in each row of ``raw`` (up to 8 bytes; of 8, its two's
    complement)."""
    return _number(raw, "<")


def _number(raw: Bytes, order: str) -> Int64Array:
    """Return pieces of 8, 4, 2 and 1 bytes, the most significant first."""
    width = raw.shape[1]
    number: Int64Array | None = None
    at = 0
    for size in (8, 4, 2, 1):
        if not width & size:
            continue
        begin = at if order == ">" else width - at - size
        kind = f"{order}i8" if size == 8 else f"{order}u{size}"
        piece = raw[:, begin : begin + size].view(kind)[:, 0].astype(np.int64)
        number = piece if number is None else number << 8 * size | piece
        at += size
    return np.zeros(len(raw), np.int64) if number is None else number


def _fixed(kind: pa.DataType, stored: Bytes, nulls: Mask | None) -> pa.Array:
    rows, width = stored.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    held = pa.py_buffer(np.ascontiguousarray(stored))
    return pa.Array.from_buffers(kind, rows, [_validity(nulls), pa.py_buffer(offsets), held])


def _validity(nulls: Mask | None) -> pa.Buffer | None:
    return None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
