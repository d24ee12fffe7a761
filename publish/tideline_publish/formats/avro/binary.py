"""Arrow columns as Avro's binary encoding, a column at a time.

Each function returns a binary array as long as the column: what Avro has of each value. NULL stays
NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.types import Kind, LogicalType

Piece: TypeAlias = pa.BinaryArray | pa.BinaryScalar
_GROUP_BITS, _GROUP, _MORE = np.uint64(7), np.uint64(0x7F), np.uint8(0x80)
_VARINT_BYTES_MAX = 10
_DECIMAL_BYTES = 16
_NULL, _VALUE = b"\x00", b"\x02"
"""The branches of a union of null and a type."""


def avro_values(column: pa.Array, logical: LogicalType) -> pa.BinaryArray:
    """Return the values of a column of that type."""
    return _ENCODERS[logical.kind](column)


def optional(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return ``values`` as those of a union with null."""
    return pc.fill_null(joined(scalar(_VALUE), values), scalar(_NULL))


def joined(*pieces: Piece) -> pa.BinaryArray:
    """Return the pieces of each row, one after the other; NULL where one of them is."""
    return pc.binary_join_element_wise(*pieces, scalar(b""))


def scalar(raw: bytes) -> pa.BinaryScalar:
    """Return bytes that each row has."""
    return pa.scalar(raw, pa.binary())


def long_bytes(number: int) -> bytes:
    """Return one number, as Avro has it."""
    return bytes(varints(np.array([number], np.int64))[0].as_py())


def text_bytes(text: str) -> bytes:
    """Return one text, as Avro has it."""
    raw = text.encode()
    return long_bytes(len(raw)) + raw


def varints(numbers: np.ndarray) -> pa.BinaryArray:
    """Return integers of at most 64 bits: zigzag, and seven bits in a byte."""
    signed = numbers.astype(np.int64, copy=False)
    left = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    groups: list[np.ndarray] = []
    lengths = np.ones(len(signed), np.int64)
    while True:
        groups.append((left & _GROUP).astype(np.uint8))
        left = left >> _GROUP_BITS
        more = left > 0
        if not more.any():
            break
        lengths += more
        groups[-1] |= np.where(more, _MORE, np.uint8(0))
    if len(groups) == 1:
        return _fixed(groups[0], 1)
    return _ragged(np.stack(groups, axis=1), lengths)


def _ragged(cells: np.ndarray, lengths: np.ndarray) -> pa.BinaryArray:
    """Return the first ``lengths`` bytes of each row of ``cells``."""
    there = np.arange(cells.shape[1]) < lengths[:, None]
    return _of_bytes(cells[there], lengths)


def _of_bytes(data: np.ndarray, lengths: np.ndarray) -> pa.BinaryArray:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def _fixed(data: np.ndarray, size: int) -> pa.BinaryArray:
    """Return values that all have ``size`` bytes."""
    count = data.nbytes // size
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _with_nulls(values: pa.BinaryArray, column: pa.Array) -> pa.BinaryArray:
    if not column.null_count:
        return values
    return pc.if_else(column.is_valid(), values, pa.scalar(None, pa.binary()))


def _numbers(column: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Return the values, 0 for NULL."""
    plain = column.cast(kind)
    filled = pc.fill_null(plain, 0) if plain.null_count else plain
    found: np.ndarray = filled.to_numpy(zero_copy_only=False)
    return found


def _integers(column: pa.Array) -> pa.BinaryArray:
    return _with_nulls(varints(_numbers(column, pa.int64())), column)


def _dates(column: pa.Array) -> pa.BinaryArray:
    return _with_nulls(varints(_numbers(column.cast(pa.int32()), pa.int64())), column)


def _booleans(column: pa.Array) -> pa.BinaryArray:
    return _with_nulls(_fixed(_numbers(column, pa.uint8()), 1), column)


def _floats(size: int) -> Callable[[pa.Array], pa.BinaryArray]:
    kind = pa.float32() if size == 4 else pa.float64()

    def encode(column: pa.Array) -> pa.BinaryArray:
        return _with_nulls(_fixed(_numbers(column, kind).astype(f"<f{size}"), size), column)

    return encode


def _bytes(column: pa.Array) -> pa.BinaryArray:
    lengths = _numbers(pc.binary_length(column), pa.int64())
    return joined(varints(lengths), column.cast(pa.binary()))


def _decimals(column: pa.Array) -> pa.BinaryArray:
    """Return the unscaled numbers, big-endian in two's complement, with their length: the fewest
    bytes that hold the sign."""
    raw = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    big = raw[column.offset : column.offset + len(column), ::-1]
    sign = np.where(big[:, 0] & 0x80, np.uint8(0xFF), np.uint8(0))
    spare = np.logical_and.accumulate(big == sign[:, None], axis=1).sum(axis=1)
    first = big[np.arange(len(big)), np.minimum(spare, _DECIMAL_BYTES - 1)]
    lengths = _DECIMAL_BYTES - spare + ((first ^ sign) >> 7)
    lengths = np.where(spare == _DECIMAL_BYTES, 1, lengths)
    cells = np.empty((len(big), _DECIMAL_BYTES + 1), np.uint8)
    cells[:, 0] = 2 * lengths  # zigzag
    cells[:, 1:] = big
    there = np.arange(_DECIMAL_BYTES + 1) > (_DECIMAL_BYTES - lengths)[:, None]
    there[:, 0] = True
    return _with_nulls(_of_bytes(cells[there], lengths + 1), column)


_ENCODERS: Mapping[Kind, Callable[[pa.Array], pa.BinaryArray]] = {
    Kind.BOOLEAN: _booleans,
    Kind.INT8: _integers,
    Kind.INT16: _integers,
    Kind.INT32: _integers,
    Kind.INT64: _integers,
    Kind.FLOAT32: _floats(4),
    Kind.FLOAT64: _floats(8),
    Kind.DECIMAL: _decimals,
    Kind.STRING: _bytes,
    Kind.BINARY: _bytes,
    Kind.DATE: _dates,
    Kind.TIMESTAMP: _integers,
    Kind.TIMESTAMP_NTZ: _integers,
}
