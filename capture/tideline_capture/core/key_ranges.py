"""Ranges of keys in which no key can lie: whoever asks for one has exchanged its ends.

Nothing would be read, and what is compared with nothing is found equal. Only numbers and dates have
an order that is known here; of texts it is their collation's, which the database has.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

from tideline.contract.request import KeyRange
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind, LogicalType

_NUMBERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.DECIMAL)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def holds_nothing(wanted: KeyRange, schema: TableSchema) -> bool:
    """Whether it is certain that no key of the table lies in the range."""
    if wanted.start is None or wanted.end is None:
        return False
    for name, first, last in zip(schema.key, wanted.start, wanted.end, strict=False):
        if first == last:
            continue
        logical = schema.column(name).logical
        begin, end = _value(first, logical), _value(last, logical)
        if begin is None or end is None or begin < end:
            return False
        if begin > end:
            return True
    # As far as both go they are the same: one that goes on lies behind one that does not.
    return len(wanted.start) >= len(wanted.end)


def _value(text: str, logical: LogicalType) -> Decimal | None:
    """What a bound is, as far as that is known here; dates as their numbers of days."""
    if logical.kind in _NUMBERS and _NUMBER.fullmatch(text):
        return Decimal(text)
    if logical.kind is Kind.DATE and _DATE.fullmatch(text):
        try:
            return Decimal(date.fromisoformat(text).toordinal())
        except ValueError:
            return None
    return None
