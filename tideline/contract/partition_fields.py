"""The fields that a table is partitioned by: a column's values, or a transform of them in Iceberg.

The text form is that of the settings and of Iceberg's specification: ``area``, ``bucket(16, id)``,
``truncate(10, name)``, ``year(t)``, ``month(t)``, ``day(t)``, ``hour(t)``. Such a text is always a
transform: a column of that name is no partition column.
https://iceberg.apache.org/spec/#partition-transforms
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tideline.contract.types import Kind, parse_type


class Transform(StrEnum):
    """The value of a partition, computed from a column's."""

    IDENTITY = "identity"
    BUCKET = "bucket"
    TRUNCATE = "truncate"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


_TEXT = re.compile(r"\s*([A-Za-z]+)\s*\(\s*(?:([0-9]{1,9})\s*,\s*)?(.*?)\s*\)\s*", re.DOTALL)
_SIZED = frozenset({Transform.BUCKET, Transform.TRUNCATE})
_WHOLE = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
_EXACT = _WHOLE | {Kind.DECIMAL, Kind.STRING}
_TIMES = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
_DATED = _TIMES | {Kind.DATE}
KINDS: Mapping[Transform, frozenset[Kind]] = {
    # A timestamp, a float or a binary is of use as a partition of its own in no table.
    Transform.IDENTITY: _EXACT | {Kind.BOOLEAN, Kind.DATE},
    Transform.BUCKET: _EXACT | _DATED | {Kind.BINARY},
    Transform.TRUNCATE: _EXACT | {Kind.BINARY},
    Transform.YEAR: _DATED,
    Transform.MONTH: _DATED,
    Transform.DAY: _DATED,
    Transform.HOUR: _TIMES,
}
"""The types of columns that each transform takes."""
_SUFFIXES = {Transform.TRUNCATE: "trunc"}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One transform of one column; ``size``: the number of buckets, or the width that texts and
    numbers are truncated to; 0 for the other transforms."""

    column: str
    transform: Transform = Transform.IDENTITY
    size: int = 0

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.column
        size = f"{self.size}, " if self.transform in _SIZED else ""
        return f"{self.transform.value}({size}{self.column})"

    @property
    def name(self) -> str:
        """The name that Iceberg gives the field; no column may have that of a transform."""
        if self.transform is Transform.IDENTITY:
            return self.column
        return f"{self.column}_{_SUFFIXES.get(self.transform, self.transform.value)}"

    def of(self, column: str) -> PartitionField:
        """Return the same transform of another column."""
        return replace(self, column=column)


@functools.lru_cache(maxsize=1024)
def parse_field(text: str) -> PartitionField:
    """Parse a text of the settings. One that is no transform is the name of a column."""
    match = _TEXT.fullmatch(text)
    transform = None if match is None else _NAMED.get(match[1].lower())
    if match is None or transform is None or not match[3]:
        return PartitionField(text)
    if transform not in _SIZED:
        # A number here belongs to the column's name: no other transform takes one.
        inner = text[text.index("(") + 1 : text.rindex(")")].strip()
        return PartitionField(inner, transform)
    size = int(match[2] or 0)
    return PartitionField(match[3], transform, size) if size else PartitionField(text)


def takes(field: PartitionField, type_text: str | None) -> bool:
    """Return whether a column of the logical type that ``type_text`` names can be partitioned by
    as ``field`` is."""
    return type_text is not None and parse_type(type_text).kind in KINDS[field.transform]


def looks_like_transform(text: str) -> bool:
    """Return whether a name looks like a transform that is not one: another, or without its
    number."""
    return _TEXT.fullmatch(text) is not None


_NAMED = {one.value: one for one in Transform if one is not Transform.IDENTITY}
