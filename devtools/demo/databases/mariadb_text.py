"""Values of MariaDB as text, on both sides of the comparison.

The comparison's own renderer, not Tideline's, so that a mistake there cannot hide here. Both sides
agree on forms that lose nothing: date and time with six digits behind the point, bytes as HEX(),
floating-point numbers as the shortest digits that read back as the same double.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from devtools.demo.databases.base import CannotRender, Texts

_HEX = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "point", "geometry")
_TIMED = ("datetime", "timestamp")
FLOATS = ("float", "double")


def expression(column: str, data_type: str) -> str:
    """Return SQL for a quoted column's text; ``data_type`` is information_schema's.

    A FLOAT's own text has six digits only; as a double it has all of them (and times one, unlike
    plus zero, keeps the sign of zero).
    """
    if data_type in _HEX:
        return f"HEX({column})"
    if data_type in _TIMED:
        return f"DATE_FORMAT({column}, '%Y-%m-%d %H:%i:%s.%f')"
    if data_type in FLOATS:
        return f"CAST({column} * 1E0 AS CHAR)"
    if data_type == "year":
        return f"CAST({column} + 0 AS CHAR)"  # 0, not 0000
    return f"CAST({column} AS CHAR CHARACTER SET utf8mb4)"


def canonical(text: str | None, data_type: str) -> str | None:
    """Convert a result of ``expression`` to the form that both sides share."""
    if text is None or data_type not in FLOATS:
        return text
    return repr(float(text))


def as_text(column: Texts) -> Texts:
    """Render the warehouse's values as that text, null where null. Raises CannotRender."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        text: Texts = pc.strftime(column.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
        return text
    if pa.types.is_floating(kind):
        return _each(column, lambda value: repr(float(value)))
    if pa.types.is_decimal(kind):
        return _each(column, lambda value: format(value, "f"))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _each(column, lambda value: str(value.hex().upper()))
    if _casts_to_the_same_text(kind):
        return column.cast(pa.string())
    raise CannotRender(f"no rendering for the warehouse type {kind}")


def _casts_to_the_same_text(kind: pa.DataType) -> bool:
    """Return true for text, integers, and dates as yyyy-mm-dd."""
    checks: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_integer,
        pa.types.is_date32,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
    )
    return any(check(kind) for check in checks)


def _each(column: Texts, write: Callable[[Any], str]) -> Texts:
    values = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, pa.string())])
