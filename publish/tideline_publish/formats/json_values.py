"""Arrow columns as texts of JSON values, a column at a time.

Numbers of any length are written digit by digit, so that nothing is rounded here: readers that hold
integers in floats must take care from 2**53 on. What JSON has no form of is a string: decimals in
plain notation, dates and times as ISO 8601 writes them, bytes in Base64, and NaN, Infinity and
-Infinity.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.types import Kind, LogicalType

NULL = "null"
_ESCAPED = np.zeros(256, dtype=bool)
_ESCAPED[:0x20] = True
_ESCAPED[[ord('"'), ord("\\")]] = True
_QUOTE = pa.scalar('"')


def json_values(column: pa.Array, logical: LogicalType) -> pa.StringArray:
    """Return the values of ``column`` as texts of JSON, ``null`` for NULL."""
    texts = _TEXTS.get(logical.kind, _plain)(column)
    return pc.fill_null(texts, NULL) if column.null_count else texts


def json_strings(texts: pa.StringArray) -> pa.StringArray:
    """Return texts as JSON strings, in quotes; NULL stays NULL."""
    if _needs_escapes(texts):
        escaped = [None if text is None else _as_json(text) for text in texts.to_pylist()]
        return pa.array(escaped, pa.string())
    return _quoted(texts)


def _needs_escapes(texts: pa.StringArray) -> bool:
    """Return whether any text has a character that JSON escapes. Bytes of the buffer that belong to
    no text of this slice may be counted: that costs time only."""
    if not len(texts):
        return False
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    first, last = offsets[texts.offset], offsets[texts.offset + len(texts)]
    if first == last:
        return False
    held = np.frombuffer(texts.buffers()[2], np.uint8)[first:last]
    return bool(_ESCAPED[held].any())


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, "")


def _plain(column: pa.Array) -> pa.StringArray:
    return column.cast(pa.string())


def _floats(column: pa.Array) -> pa.StringArray:
    texts = column.cast(pa.string())
    # Many a reader takes -0 for an integer, which has no sign.
    texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    finite = pc.is_finite(column)
    if pc.all(finite, min_count=0).as_py():
        return texts
    names = pc.if_else(pc.is_nan(column), "NaN", pc.if_else(pc.less(column, 0), _LESS, _MORE))
    return pc.if_else(finite, texts, _quoted(names))


_LESS, _MORE = "-Infinity", "Infinity"


def _decimals(column: pa.Array) -> pa.StringArray:
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
        plain = [None if one is None else _in_plain_notation(one) for one in column.to_pylist()]
        texts = pa.array(plain, pa.string())
    return _quoted(texts)


def _in_plain_notation(value: Decimal) -> str:
    return format(value, "f")


def _bytes(column: pa.Array) -> pa.StringArray:
    texts = [
        None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()
    ]
    return _quoted(pa.array(texts, pa.string()))


def _dates(column: pa.Array) -> pa.StringArray:
    return _quoted(column.cast(pa.string()))


def _local_times(column: pa.Array) -> pa.StringArray:
    return _quoted(_iso(column))


def _times(column: pa.Array) -> pa.StringArray:
    texts = _iso(column.cast(pa.timestamp("us")))
    return pc.binary_join_element_wise(_QUOTE, texts, pa.scalar('Z"'), "")


def _iso(column: pa.Array) -> pa.StringArray:
    return pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)


_TEXTS: Mapping[Kind, Callable[[pa.Array], pa.StringArray]] = {
    Kind.FLOAT32: _floats,
    Kind.FLOAT64: _floats,
    Kind.DECIMAL: _decimals,
    Kind.STRING: json_strings,
    Kind.BINARY: _bytes,
    Kind.DATE: _dates,
    Kind.TIMESTAMP: _times,
    Kind.TIMESTAMP_NTZ: _local_times,
}
"""By kind; others are written as Arrow writes them."""
