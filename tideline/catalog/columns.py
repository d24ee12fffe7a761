"""A column's type as catalogs write it, from Spark's JSON, in which a table's log has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tideline.warehouse.base import ColumnType

_SQL = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_HIVE = {"timestamp_ntz": "timestamp"}
"""Types that Hive has under another name. A point in time and a local time are one type there."""


def sql_type(found: ColumnType) -> str:
    """Return the type in Spark's SQL, as ``map<string,bigint>``."""
    return _text(found, _SQL)


def hive_type(found: ColumnType) -> str:
    """Return the type as Hive and Glue have it; ``string`` for one that they do not have, such as
    an interval: readers take the table's own types."""
    text = _text(found, {**_SQL, **_HIVE})
    return text if all(word in _KNOWN for word in _words(text)) else "string"


def _text(found: ColumnType, names: Mapping[str, str]) -> str:
    if isinstance(found, str):
        return names.get(found, found)
    kind: Any = found.get("type")
    if kind == "array":
        return f"array<{_text(found['elementType'], names)}>"
    if kind == "map":
        return f"map<{_text(found['keyType'], names)},{_text(found['valueType'], names)}>"
    if kind == "struct":
        fields = (f"{one['name']}:{_text(one['type'], names)}" for one in found["fields"])
        return f"struct<{','.join(fields)}>"
    return str(kind)


_KNOWN = frozenset(
    {
        "array", "bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "map",
        "smallint", "string", "timestamp", "tinyint",
    }
)  # fmt: skip
"""A struct is none of them: its fields can have names that Hive cannot parse."""


def _words(text: str) -> list[str]:
    for mark in "<>,()":
        text = text.replace(mark, " ")
    return [word for word in text.split() if not word.isdigit()]
