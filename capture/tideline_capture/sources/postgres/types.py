"""PostgreSQL's types: the logical type that holds each, and its text turned into Arrow.

Both ways out of the server (the replication stream and COPY) print a value with its type's output
function, so one parser serves both, given that the settings this text depends on are pinned.

Invariant: no value becomes NULL silently. A text that its column's type cannot hold (``infinity``,
a year above 9999 or BC, a NaN numeric, bytes that are not UTF-8) is NULL in the values and stands
in the overflow, and nothing that the server may print raises.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import InvariantBroken
from tideline.contract.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DECIMAL_PRECISION_MAX,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Kind,
    LogicalType,
    decimal,
)
from tideline_capture.arrow_types import Converted, arrow_type

PINNED: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "quote_all_identifiers": "off",
    "search_path": "pg_catalog",
}
"""Settings that the text of some type depends on (``search_path``: regclass and its kin)."""

NUMERIC_OID = 1700
_TYPMOD_HEADER = 4

_LOGICAL: Mapping[int, LogicalType] = {
    16: BOOLEAN,
    17: BINARY,
    20: INT64,
    21: INT16,
    23: INT32,
    26: INT64,  # oid is unsigned, of 32 bits
    700: FLOAT32,
    701: FLOAT64,
    1082: DATE,
    1114: TIMESTAMP_NTZ,
    1184: TIMESTAMP,
}

_SECONDS = r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?"
_FORMS: Mapping[Kind, str] = {
    Kind.BOOLEAN: r"^[tf]$",
    Kind.INT8: r"^-?\d+$",
    Kind.INT16: r"^-?\d+$",
    Kind.INT32: r"^-?\d+$",
    Kind.INT64: r"^-?\d+$",
    Kind.FLOAT32: r"^(-?\d+(\.\d+)?(e[+-]?\d+)?|NaN|-?Infinity)$",
    Kind.FLOAT64: r"^(-?\d+(\.\d+)?(e[+-]?\d+)?|NaN|-?Infinity)$",
    Kind.DECIMAL: r"^-?\d+(\.\d+)?$",
    Kind.BINARY: r"^\\x([0-9a-f]{2})*$",
    Kind.DATE: r"^\d{4}-\d{2}-\d{2}$",
    Kind.TIMESTAMP: rf"^{_SECONDS}\+00$",
    Kind.TIMESTAMP_NTZ: rf"^{_SECONDS}$",
}
"""The printed form of a value that fits; only used once a whole column has failed to parse."""


_NO_TEXT = pa.scalar(None, pa.string())


@dataclass(frozen=True, slots=True)
class PgType:
    """A column's type: ``name`` as ``format_type`` prints it, domains resolved in ``base_*``."""

    oid: int
    typmod: int
    name: str
    base_oid: int
    base_typmod: int


def logical_type(pg: PgType) -> LogicalType:
    """Return the logical type that holds every ordinary value of ``pg``; text for all unknown
    types."""
    if pg.base_oid == NUMERIC_OID:
        return _numeric(pg.base_typmod)
    return _LOGICAL.get(pg.base_oid, STRING)


def to_arrow(text: pa.Array, logical: LogicalType) -> Converted:
    """Convert ``text`` (string or binary, as printed under `PINNED`) to values of ``logical``.

    Raises nothing for any content; InvariantBroken if a value were lost.
    """
    try:
        converted = Converted(_parse(text, logical))
    except pa.ArrowInvalid:
        converted = _salvage(text, logical)
    overflow = converted.overflow
    held = 0 if overflow is None else len(overflow) - overflow.null_count
    if converted.values.null_count != text.null_count + held:
        raise InvariantBroken(f"nulls appeared while parsing {logical}")
    return converted


def _numeric(typmod: int) -> LogicalType:
    """Return the type of numeric(p, s): a decimal; text when unbounded or wider than a decimal can
    be.

    Since PostgreSQL 15 the scale may be negative (numeric(3,-2) holds 99900) or above the precision
    (numeric(2,4) holds 0.0099); it has 11 bits, with sign.
    """
    if typmod < _TYPMOD_HEADER:
        return STRING
    precision = (typmod - _TYPMOD_HEADER) >> 16 & 0xFFFF
    scale = (((typmod - _TYPMOD_HEADER) & 0x7FF) ^ 0x400) - 0x400
    digits = max(precision, scale) - min(scale, 0)
    return decimal(digits, max(scale, 0)) if digits <= DECIMAL_PRECISION_MAX else STRING


def _parse(text: pa.Array, logical: LogicalType) -> pa.Array:
    """Convert all of ``text`` to values; pa.ArrowInvalid when any value does not fit."""
    checked = text.cast(pa.string())
    if logical.kind is Kind.STRING:
        return checked
    if logical.kind is Kind.BOOLEAN:
        return _booleans(checked)
    if logical.kind is Kind.BINARY:
        return _bytes_of_hex(checked)
    return checked.cast(arrow_type(logical))


def _booleans(text: pa.StringArray) -> pa.BooleanArray:
    true = pc.equal(text, "t")
    if pc.all(pc.or_(true, pc.equal(text, "f"))).as_py() is False:
        raise pa.ArrowInvalid("not a boolean")
    return true


def _bytes_of_hex(text: pa.StringArray) -> pa.BinaryArray:
    r"""Convert ``\x…`` to bytes: the whole buffer at once, each ``\x`` read as a byte and cut
    out."""
    rows = len(text)
    filled = pc.fill_null(text, "\\x") if text.null_count else text
    _, offset_buffer, data = filled.buffers()
    if rows == 0:
        return pa.array([], pa.binary())
    if data is None:
        return _refuse()
    offsets = np.frombuffer(offset_buffer, np.int32)[filled.offset : filled.offset + rows + 1]
    digits = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].copy()
    offsets = offsets - offsets[0]
    starts, lengths = offsets[:-1], np.diff(offsets)
    if (lengths < 2).any() or (lengths & 1).any():
        return _refuse()
    if (digits[starts] != ord("\\")).any() or (digits[starts + 1] != ord("x")).any():
        return _refuse()
    digits[starts] = digits[starts + 1] = ord("0")
    try:
        raw = np.frombuffer(binascii.unhexlify(digits.data), np.uint8)
    except binascii.Error:
        return _refuse()
    kept = np.delete(raw, starts >> 1)
    cut = (offsets >> 1) - np.arange(rows + 1, dtype=np.int32)
    values = pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(cut.astype(np.int32)), pa.py_buffer(kept)]
    )
    return pc.if_else(text.is_valid(), values, None) if text.null_count else values


def _refuse() -> pa.BinaryArray:
    raise pa.ArrowInvalid("not bytes in hex")


def _salvage(text: pa.Array, logical: LogicalType) -> Converted:
    """Return the values that fit, and everything else as overflow."""
    printable, fits = _printable(text)
    if logical.kind is not Kind.STRING:
        fits = pc.and_(fits, pc.match_substring_regex(printable, _FORMS[logical.kind]))
    try:
        values = _parse(pc.if_else(fits, printable, _NO_TEXT), logical)
    except pa.ArrowInvalid:
        fits = pa.array([_fits(value, logical) for value in printable], pa.bool_())
        values = _parse(pc.if_else(fits, printable, _NO_TEXT), logical)
    return Converted(values, pc.if_else(fits, _NO_TEXT, printable))


def _printable(text: pa.Array) -> tuple[pa.StringArray, pa.BooleanArray]:
    r"""Return ``text`` as valid UTF-8, and which values were; others get ``\xNN`` for their bad
    bytes."""
    if pa.types.is_string(text.type):
        return text, text.is_valid()
    raw = text.to_pylist()
    printable = [None if v is None else v.decode(errors="backslashreplace") for v in raw]
    fits = [v is not None and v == (p or "").encode() for v, p in zip(raw, printable, strict=True)]
    return pa.array(printable, pa.string()), pa.array(fits, pa.bool_())


def _fits(value: pa.StringScalar, logical: LogicalType) -> bool:
    if not value.is_valid:
        return False
    try:
        _parse(pa.array([value.as_py()], pa.string()), logical)
    except pa.ArrowInvalid:
        return False
    return True
