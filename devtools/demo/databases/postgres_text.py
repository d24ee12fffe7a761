"""Renders warehouse values as the text that PostgreSQL prints for them.

The comparison's own renderer: written from PostgreSQL's manual and not from Tideline's readers, so
that a mistake in those cannot hide here. PostgreSQL's output depends on the session settings
of `devtools.demo.databases.postgres`: ISO dates, UTC, hexadecimal bytea, shortest exact floats.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from devtools.demo.databases.base import CannotRender, Texts

_FLOAT_DIGITS = {32: 6, 64: 15}
"""Decimal exponents from which float4out and float8out write 1e+06 instead of 1000000."""
_SMALLEST_PLAIN_EXPONENT = -4


def as_text(column: Texts) -> Texts:
    """Render the column's values as text, null where they are null. Raises CannotRender."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _timestamps(column)
    if pa.types.is_floating(kind):
        return _each(column, _float_writer(kind.bit_width))
    if pa.types.is_decimal(kind):
        return _each(column, _decimal)
    if _is_binary(kind):
        return _each(column, lambda value: "\\x" + value.hex())
    if _casts_to_the_same_text(kind):
        return column.cast(pa.string())
    raise CannotRender(f"no rendering for the warehouse type {kind}")


def _is_binary(kind: pa.DataType) -> bool:
    return any(
        check(kind)
        for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    )


def _casts_to_the_same_text(kind: pa.DataType) -> bool:
    """Return true for text, integers, booleans, and dates as yyyy-mm-dd."""
    checks: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date32,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _timestamps(column: Texts) -> Texts:
    """Render as ``2026-01-31 23:59:59.5``, with ``+00`` if the type has a time zone."""
    plain = column.cast(pa.timestamp("us")).cast(pa.string())
    trimmed = pc.replace_substring_regex(plain, r"\.?0+$", "", max_replacements=1)
    has_fraction = pc.match_substring(plain, ".")
    text: Texts = pc.if_else(has_fraction, trimmed, plain)
    if column.type.tz is not None:
        text = pc.replace_substring_regex(text, "$", "+00", max_replacements=1)
    return text


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _float_writer(bits: int) -> Callable[[float], str]:
    """Return float4out or float8out: the shortest digits that read back as the same number."""
    narrow = np.float32 if bits == 32 else np.float64

    def write(value: float) -> str:
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        number = narrow(value)
        scientific = np.format_float_scientific(number, unique=True, trim="-")
        mantissa, _, exponent = scientific.partition("e")
        power = int(exponent)
        if _SMALLEST_PLAIN_EXPONENT <= power < _FLOAT_DIGITS[bits]:
            return str(np.format_float_positional(number, unique=True, trim="-"))
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"

    return write


def _each(column: Texts, write: Callable[[Any], str]) -> Texts:
    values = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, pa.string())])
