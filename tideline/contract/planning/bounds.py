"""Bounds of several parts' keys together; the texts are compared as what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tideline.contract.manifest import Part
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind

_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_MOMENTS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def key_bounds(
    parts: Sequence[Part], schemas: Sequence[TableSchema]
) -> tuple[str | None, str | None]:
    """Return the least and greatest first key column over all parts; (None, None) unless all have
    it.

    The texts are compared as numbers or as moments, never as text.
    """
    if not all(schema.key for schema in schemas):
        return None, None
    kinds = {schema.column(schema.key[0]).logical.kind for schema in schemas}
    bounds = [(part.key_min, part.key_max) for part in parts]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    if not bounds or len(lows) < len(bounds) or len(highs) < len(bounds):
        return None, None
    if kinds <= set(_INTEGERS):
        return min(lows, key=int), max(highs, key=int)
    if len(kinds) == 1 and kinds <= set(_MOMENTS):
        moments = {text: _moment(text) for text in (*lows, *highs)}
        if None not in moments.values():
            order = {text: moment for text, moment in moments.items() if moment is not None}
            return min(lows, key=order.__getitem__), max(highs, key=order.__getitem__)
    return None, None


def _moment(text: str) -> datetime | None:
    """Return the moment that ``text`` names, None outside the years 1 to 9999."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is None else moment.astimezone(UTC)
