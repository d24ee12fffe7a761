"""Logical types: the neutral middle between a source's types and the warehouse's.

A source maps its types to these, the parts and the warehouse map from these, so that N sources
and M targets need N+M maps. The text form (``int64``, ``decimal(12,2)``) is what documents hold.
"""

from __future__ import annotations

import functools
import re
from enum import StrEnum

import msgspec

from tideline.contract.errors import CorruptData

DECIMAL_PRECISION_MAX = 38


class Kind(StrEnum):
    """Every logical type; only ``DECIMAL`` takes parameters."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    """A point in time, microseconds, UTC."""
    TIMESTAMP_NTZ = "timestamp_ntz"
    """A local date and time without a zone, microseconds."""


class LogicalType(msgspec.Struct, frozen=True):
    """One logical type; ``precision`` and ``scale`` are 0 unless the kind is a decimal."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return self.kind.value


BOOLEAN = LogicalType(Kind.BOOLEAN)
INT8 = LogicalType(Kind.INT8)
INT16 = LogicalType(Kind.INT16)
INT32 = LogicalType(Kind.INT32)
INT64 = LogicalType(Kind.INT64)
FLOAT32 = LogicalType(Kind.FLOAT32)
FLOAT64 = LogicalType(Kind.FLOAT64)
STRING = LogicalType(Kind.STRING)
BINARY = LogicalType(Kind.BINARY)
DATE = LogicalType(Kind.DATE)
TIMESTAMP = LogicalType(Kind.TIMESTAMP)
TIMESTAMP_NTZ = LogicalType(Kind.TIMESTAMP_NTZ)

_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)")
_INTEGER_ORDER = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_INTEGER_DIGITS = {Kind.INT8: 10, Kind.INT16: 10, Kind.INT32: 10, Kind.INT64: 20}
"""The digits before the point that targets require of a decimal, more than the values need."""


def decimal(precision: int, scale: int) -> LogicalType:
    """Make a decimal type of at most 38 digits; callers send wider ones to ``STRING``."""
    if not (1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
        raise CorruptData(f"decimal({precision},{scale}) is not a logical type")
    return LogicalType(Kind.DECIMAL, precision, scale)


@functools.lru_cache(maxsize=1024)
def parse_type(text: str) -> LogicalType:
    """Parse the logical type that ``text`` names; raises CorruptData for any other text."""
    match = _DECIMAL.fullmatch(text)
    if match:
        return decimal(int(match[1]), int(match[2]))
    try:
        kind = Kind(text)
    except ValueError:
        raise CorruptData(f"unknown logical type {text!r}") from None
    if kind is Kind.DECIMAL:
        raise CorruptData("a decimal needs precision and scale")
    return LogicalType(kind)


def widens(old: LogicalType, new: LogicalType) -> bool:
    """Return whether every value of ``old`` keeps its exact value and meaning as ``new``.

    These are the changes that targets make in place: growing integers, integers to
    decimals that hold them, and decimals that lose digits on neither side of the point.
    """
    if old == new:
        return True
    if old.kind in _INTEGER_ORDER and new.kind in _INTEGER_ORDER:
        return _INTEGER_ORDER.index(old.kind) < _INTEGER_ORDER.index(new.kind)
    if old.kind is Kind.FLOAT32:
        return new.kind is Kind.FLOAT64
    if new.kind is not Kind.DECIMAL:
        return False
    if old.kind in _INTEGER_DIGITS:
        return new.precision - new.scale >= _INTEGER_DIGITS[old.kind]
    if old.kind is Kind.DECIMAL:
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    return False
