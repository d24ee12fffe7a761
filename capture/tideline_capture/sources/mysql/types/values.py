"""A column's values as the row images hold them, turned into Arrow.

Invariant: no value becomes NULL silently. A value that the column's type cannot hold is NULL in the
values and stands in the overflow as the server prints it; bytes that no server writes raise
CorruptData.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tideline.contract.errors import CorruptData
from tideline_capture.arrow_types import Converted
from tideline_capture.sources.mysql.types import decimals, temporals
from tideline_capture.sources.mysql.types.arrays import (
    bytes_array,
    fixed_bytes,
    fixed_texts,
    little_endian,
    texts_of,
    values_array,
)
from tideline_capture.sources.mysql.types.charsets import decode_texts
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn
from tideline_capture.sources.mysql.types.fields import Fixed, Variable
from tideline_capture.sources.mysql.types.gather import Bytes, take
from tideline_capture.sources.mysql.types.images import Slot
from tideline_capture.sources.mysql.types.json_binary import json_text
from tideline_capture.sources.mysql.types.natives import native_texts

_INTEGER_BYTES = {Code.TINY: 1, Code.SHORT: 2, Code.INT24: 3, Code.LONG: 4, Code.LONGLONG: 8}
_INTEGERS = {
    (Code.TINY, False): pa.int8(),
    (Code.TINY, True): pa.int16(),
    (Code.SHORT, False): pa.int16(),
    (Code.SHORT, True): pa.int32(),
    (Code.INT24, False): pa.int32(),
    (Code.INT24, True): pa.int32(),
    (Code.LONG, False): pa.int32(),
    (Code.LONG, True): pa.int64(),
    (Code.LONGLONG, False): pa.int64(),
}
_LENGTH_OF_ONE_BYTE_MAX = 255
_ZLIB = 8


def slot(column: MysqlColumn) -> Slot:
    """Return the layout of the column's values in a row image."""
    code = column.code
    if code in _INTEGER_BYTES:
        return Slot(_INTEGER_BYTES[code])
    if code in _WIDTHS:
        return Slot(_WIDTHS[code](column))
    if code in (Code.VARCHAR, Code.STRING):
        short = column.length <= _LENGTH_OF_ONE_BYTE_MAX and not column.compressed
        return Slot(0, 1 if short else 2)
    if code in (Code.BLOB, Code.JSON, Code.GEOMETRY, Code.VECTOR):
        return Slot(0, column.length)
    raise CorruptData(f"column {column.name} has type code {code}, which no decoder is known for")


def fixed_values(field: Fixed, column: MysqlColumn) -> Converted:
    """Convert values of a fixed width to an array of the column's logical type."""
    if column.code in _INTEGER_BYTES:
        return Converted(_integers(field, column))
    return _FIXED[column.code](field, column)


def variable_values(data: Bytes, field: Variable, column: MysqlColumn) -> Converted:
    """Convert values behind a length to an array of the column's logical type."""
    if column.code == Code.STRING and (column.native or column.charset == BYTES):
        stored = _padded(data, field, column)
        if column.native:
            return Converted(native_texts(column.native, stored, field.nulls))
        return Converted(fixed_bytes(stored, field.nulls))
    raw = bytes_array(data, field)
    if column.code == Code.JSON:
        return Converted(_each(raw, pa.string(), json_text))
    if column.compressed:
        raw = _each(raw, pa.binary(), functools.partial(_inflated, column.name))
    if column.code in (Code.GEOMETRY, Code.VECTOR) or column.charset == BYTES:
        return Converted(raw)
    return decode_texts(raw, column.charset)


def _padded(data: Bytes, field: Variable, column: MysqlColumn) -> Bytes:
    """Return all bytes of each value: the log leaves zeros at the end out."""
    length = column.length
    if (field.length > length).any():
        raise CorruptData(f"column {column.name} holds more bytes than it can")
    stored = take(data, field.at, 0, length)
    short = np.nonzero(field.length < length)[0]
    there = np.arange(length) < field.length[short, None]
    stored[short] = np.where(there, stored[short], 0)
    return stored


def _each(raw: pa.BinaryArray, kind: pa.DataType, convert: Callable[[bytes], Any]) -> pa.Array:
    """Decode value by value, for types that numpy cannot take apart."""
    values = [None if value is None else convert(value) for value in raw.to_pylist()]
    converted = pa.array(values, kind)
    if isinstance(converted, pa.ChunkedArray):
        raise CorruptData("the values of a column come to more than 2 GiB in one batch")
    return converted


def _inflated(name: str, stored: bytes) -> bytes:
    """Decode a value of one of MariaDB's COMPRESSED columns.

    The first byte is 0 before a plain value; else its upper half is 8 (zlib), its lower three bits
    give the number of bytes of the value's length, which follow, and the bit between them that
    zlib's own header is left out. (MariaDB: sql/field_comp.cc.)
    """
    if not stored:
        return stored
    if stored[0] == 0:
        return stored[1:]
    size = stored[0] & 7
    length = int.from_bytes(stored[1 : 1 + size], "big")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS if stored[0] & 8 else zlib.MAX_WBITS)
    try:
        value = inflater.decompress(stored[1 + size :], max(length, 1))
    except zlib.error:
        value = b""
    if stored[0] >> 4 != _ZLIB or not inflater.eof or len(value) != length:
        raise CorruptData(f"column {name} holds a compressed value that cannot be expanded")
    return value


def _integers(field: Fixed, column: MysqlColumn) -> pa.Array:
    raw = field.raw
    if column.code == Code.LONGLONG and column.unsigned:
        return decimals.unsigned_decimals(raw, field.nulls)
    kind = _INTEGERS[column.code, column.unsigned]
    if column.code == Code.INT24:
        numbers = little_endian(raw).astype(np.int32)
        if not column.unsigned:
            numbers = (numbers ^ 0x800000) - 0x800000
    else:
        sign = "u" if column.unsigned else "i"
        numbers = raw.view(f"<{sign}{raw.shape[1]}")[:, 0].astype(kind.to_pandas_dtype())
    return values_array(kind, numbers, field.nulls)


def _floats(field: Fixed, column: MysqlColumn) -> Converted:
    if column.code == Code.FLOAT:
        return Converted(values_array(pa.float32(), field.raw.view("<f4"), field.nulls))
    return Converted(values_array(pa.float64(), field.raw.view("<f8"), field.nulls))


def _bits(field: Fixed, column: MysqlColumn) -> Converted:
    """Print all bits as 0 and 1, the highest first."""
    digits = np.unpackbits(field.raw, axis=1)[:, -column.length :] + np.uint8(ord("0"))
    return Converted(fixed_texts(digits, field.nulls))


def _enums(field: Fixed, column: MysqlColumn) -> Converted:
    """Return the labels; the index 0 is the empty text, which stands for a value that was not
    allowed."""
    index = little_endian(field.raw) if field.raw.shape[1] > 1 else field.raw[:, 0]
    if field.nulls is not None:
        index = np.where(field.nulls, 0, index)
    if len(index) and index.max() > len(column.labels):
        raise CorruptData(f"column {column.name} holds an index that its enum does not have")
    labels = pa.array(["", *column.labels], pa.string())
    return Converted(labels.take(pa.array(index, mask=field.nulls)))


def _sets(field: Fixed, column: MysqlColumn) -> Converted:
    """Return the labels in the order of their declaration."""
    known = (1 << len(column.labels)) - 1

    def text(stored: int) -> str:
        members = stored & (1 << 64) - 1
        if members & ~known:
            raise CorruptData(f"column {column.name} holds a member that its set does not have")
        return ",".join(label for at, label in enumerate(column.labels) if members >> at & 1)

    return Converted(texts_of(little_endian(field.raw), text, field.nulls))


_WIDTHS: Mapping[int, Callable[[MysqlColumn], int]] = {
    Code.FLOAT: lambda _: 4,
    Code.DOUBLE: lambda _: 8,
    Code.NEWDECIMAL: lambda column: decimals.decimal_width(column.precision, column.scale),
    Code.DATE: lambda _: 3,
    Code.YEAR: lambda _: 1,
    Code.DATETIME2: lambda column: temporals.time_width(5, column.fsp),
    Code.TIMESTAMP2: lambda column: temporals.time_width(4, column.fsp),
    Code.TIME2: lambda column: temporals.time_width(3, column.fsp),
    Code.BIT: lambda column: (column.length + 7) // 8,
    Code.ENUM: lambda column: column.length,
    Code.SET: lambda column: column.length,
}
_FIXED: Mapping[int, Callable[[Fixed, MysqlColumn], Converted]] = {
    Code.FLOAT: _floats,
    Code.DOUBLE: _floats,
    Code.NEWDECIMAL: lambda field, column: decimals.decimals(field, column.precision, column.scale),
    Code.DATE: lambda field, _: temporals.dates(field),
    Code.YEAR: lambda field, _: temporals.years(field),
    Code.DATETIME2: lambda field, column: temporals.datetimes(field, column.fsp),
    Code.TIMESTAMP2: lambda field, column: temporals.timestamps(field, column.fsp),
    Code.TIME2: lambda field, column: temporals.times(field, column.fsp),
    Code.BIT: _bits,
    Code.ENUM: _enums,
    Code.SET: _sets,
}
