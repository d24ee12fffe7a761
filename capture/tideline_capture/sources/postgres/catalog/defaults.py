"""The values that existing rows hold in a column that was added with a default.

PostgreSQL does not write such a value into the rows: it keeps it next to the column
(``attmissingval``), for as long as the rows are not rewritten. The decoder of the column's values
reads it. It counts as unknown here if it is not exactly the value that the warehouse would hold in
each row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tideline.contract.types import Kind, LogicalType
from tideline_capture.sources.postgres.types import to_arrow

MISSING = """
CASE WHEN a.atthasmissing THEN
  (SELECT m.one[1] FROM (SELECT a.attmissingval::text::text[] AS one) m
   WHERE pg_catalog.array_ndims(m.one) = 1 AND pg_catalog.cardinality(m.one) = 1) END
"""
"""The text of the value, the only one in the array that keeps it. There is none for a value that is
an array itself, or of a type whose arrays are written in another way."""


def known_defaults(
    filled: Iterable[tuple[str, str | None]], types: Mapping[str, LogicalType]
) -> dict[str, str]:
    """Return, by column, the value that all of ``filled`` agree on, as `ColumnStep.default` writes
    it.

    ``filled`` are columns of the table, or of each of its partitions, with the texts of values.
    """
    found: dict[str, set[str | None]] = {}
    for name, text in filled:
        found.setdefault(name, set()).add(text)
    known = {}
    for name, (text, *others) in found.items():
        if text is not None and not others and name in types:
            value = _canonical(text, types[name])
            if value is not None:
                known[name] = value
    return known


def _canonical(text: str, logical: LogicalType) -> str | None:
    """Return the canonical text; None for a value that the column's type cannot hold."""
    value = to_arrow(pa.array([text], pa.string()), logical).values[0].as_py()
    return None if value is None else _written(value, logical.kind)


def _written(value: Any, kind: Kind) -> str | None:
    if kind is Kind.BOOLEAN:
        return "true" if value else "false"
    if kind is Kind.BINARY:
        return bytes(value).hex()
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        moment = value.astimezone(UTC) if value.tzinfo is not None else value
        return str(moment.replace(tzinfo=None).isoformat(sep=" "))
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)
