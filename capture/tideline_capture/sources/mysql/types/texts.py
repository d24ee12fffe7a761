"""Values of the text protocol, of one column at a time, as Arrow.

A dump reads the same content as the log's images: the same values, the same texts for values that
do not fit. So texts come in their column's own charset (``character_set_results = NULL``) and are
decoded as the log's are, floating-point numbers come as exact doubles (see `chunk_query.selected`),
and a date is one that a calendar has, or NULL with its text in the overflow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import CorruptData
from tideline.contract.types import Kind
from tideline_capture.arrow_types import UTC_MICROSECONDS, Converted, arrow_type
from tideline_capture.sources.mysql.types.arrays import fixed_texts
from tideline_capture.sources.mysql.types.charsets import decode_label, decode_texts
from tideline_capture.sources.mysql.types.columns import BYTES, Code, MysqlColumn

JSON_CHARSET = "utf8mb4"
"""MySQL's binary JSON is printed in it."""

_DATE_CHARACTERS = 10
_PADDING_ZEROS = r"^(-?)0+(\d)"
"""ZEROFILL's; the last digit before the point stays."""


def to_arrow(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    """Return ``raw`` as values of ``column.logical``; the server's text where one does not fit.

    Raises CorruptData for bytes that the server does not print for such a column.
    """
    convert = _CONVERSIONS.get(column.code)
    if convert is None:
        raise CorruptData(f"column {column.name!r} has a type without texts, {column.code}")
    try:
        return convert(raw, column)
    except pa.ArrowInvalid:
        # Arrow's message may quote the value.
        raise CorruptData(
            f"column {column.name!r} holds a text that is no {column.source_type}"
        ) from None


def _number(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    return Converted(_ascii(raw).cast(arrow_type(column.logical)))


def _float(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    """Convert by way of a double: the text is that of the double that the stored number is."""
    return Converted(_ascii(raw).cast(pa.float64()).cast(pa.float32(), safe=False))


def _decimal(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    if column.logical.kind is Kind.DECIMAL:
        return _number(raw, column)
    text = _checked_ascii(raw)
    if column.unsigned:
        text = pc.replace_substring_regex(text, _PADDING_ZEROS, r"\1\2")
    return Converted(text)


def _time(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    return Converted(_checked_ascii(raw))


def _date(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    return _calendar(_ascii(raw), pa.date32())


def _datetime(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    return _calendar(_ascii(raw), pa.timestamp("us"))


def _timestamp(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    """Parse times in UTC, which is the session's time zone."""
    local = _calendar(_ascii(raw), pa.timestamp("us"))
    return Converted(local.values.view(UTC_MICROSECONDS), local.overflow)


def _calendar(text: pa.StringArray, kind: pa.DataType) -> Converted:
    try:
        values = text.cast(kind)
    except pa.ArrowInvalid:
        values = None
    first = pa.scalar(_FIRST_DAY, pa.date32()).cast(kind)
    # Arrow knows a year 0, which no calendar of ours has.
    if values is not None and not pc.any(pc.less(values, first)).as_py():
        return Converted(values)
    fits = pc.and_(pa.array(_is_day(text)), text.is_valid())
    nothing = pa.scalar(None, pa.string())
    return Converted(
        pc.if_else(fits, text, nothing).cast(kind), pc.if_else(fits, nothing, _checked_ascii(text))
    )


_FIRST_DAY = np.datetime64("0001-01-01").item()


def _is_day(text: pa.StringArray) -> npt.NDArray[np.bool_]:
    """Return whether each text, ``YYYY-MM-DD…``, begins with a day of the calendar."""
    days = pc.utf8_slice_codeunits(pc.fill_null(text, "0000-00-00"), 0, _DATE_CHARACTERS)
    digits = _joined(days.cast(pa.binary()), _DATE_CHARACTERS).astype(np.int64) - ord("0")
    year = digits[:, :4] @ np.array([1000, 100, 10, 1])
    month = digits[:, 5] * 10 + digits[:, 6]
    day = digits[:, 8] * 10 + digits[:, 9]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _LAST_DAYS[np.clip(month, 0, 13)] + (leap & (month == 2))
    fits: npt.NDArray[np.bool_] = (year >= 1) & (day >= 1) & (day <= last)
    return fits


_LAST_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 0])


def _bit(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    """Return big-endian bytes as ``0`` and ``1``, as many as the column is wide."""
    width = (column.length + 7) // 8
    stored = _joined(pc.fill_null(raw, bytes(width)), width)
    bits = np.unpackbits(stored, axis=1)[:, 8 * width - column.length :]
    nulls = raw.is_null().to_numpy(zero_copy_only=False) if raw.null_count else None
    return Converted(fixed_texts(bits + np.uint8(ord("0")), nulls))


def _labels(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    """Decode labels: few different texts, each decoded once."""
    coded = raw.dictionary_encode()
    labels = [decode_label(one, column.charset) for one in coded.dictionary.to_pylist()]
    return Converted(pa.array(labels, pa.string()).take(coded.indices))


def _json(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    return decode_texts(raw, column.charset or JSON_CHARSET)


def _text(raw: pa.BinaryArray, column: MysqlColumn) -> Converted:
    if column.native:
        return Converted(_checked_ascii(raw))
    return Converted(raw) if column.charset == BYTES else decode_texts(raw, column.charset)


def _bytes(raw: pa.BinaryArray, _: MysqlColumn) -> Converted:
    return Converted(raw)


_CONVERSIONS: dict[int, Callable[[pa.BinaryArray, MysqlColumn], Converted]] = {
    **dict.fromkeys((Code.TINY, Code.SHORT, Code.INT24, Code.LONG, Code.LONGLONG), _number),
    Code.YEAR: _number,
    Code.FLOAT: _float,
    Code.DOUBLE: _number,
    Code.NEWDECIMAL: _decimal,
    Code.DATE: _date,
    **dict.fromkeys((Code.TIME, Code.TIME2), _time),
    **dict.fromkeys((Code.DATETIME, Code.DATETIME2), _datetime),
    **dict.fromkeys((Code.TIMESTAMP, Code.TIMESTAMP2), _timestamp),
    Code.BIT: _bit,
    **dict.fromkeys((Code.ENUM, Code.SET), _labels),
    Code.JSON: _json,
    **dict.fromkeys((Code.VARCHAR, Code.STRING, Code.BLOB), _text),
    **dict.fromkeys((Code.GEOMETRY, Code.VECTOR), _bytes),
}


def _ascii(raw: pa.BinaryArray) -> pa.StringArray:
    """Return ``raw`` as texts, unchecked: their parsers refuse anything but ASCII."""
    return raw.view(pa.string())


def _checked_ascii(raw: pa.Array) -> pa.StringArray:
    return raw.cast(pa.binary()).cast(pa.string())


def _joined(raw: pa.BinaryArray, width: int) -> npt.NDArray[np.uint8]:
    """Return the bytes of values that all have ``width`` of them, a row each; none may be NULL."""
    if pc.any(pc.not_equal(pc.binary_length(raw), width)).as_py():
        raise pa.ArrowInvalid("values of another width")
    _, offsets, data = raw.buffers()
    if not len(raw):
        return np.empty((0, width), np.uint8)
    begin = int(np.frombuffer(offsets, np.int32)[raw.offset])
    return np.frombuffer(data, np.uint8)[begin : begin + len(raw) * width].reshape(-1, width)
