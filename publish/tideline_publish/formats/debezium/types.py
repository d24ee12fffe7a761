"""The field of a column, by the kind of its source."""

from __future__ import annotations

from functools import lru_cache

from tideline.contract.schema import Column
from tideline_publish.formats.debezium.fields import FieldType
from tideline_publish.formats.debezium.mysql import mysql_field
from tideline_publish.formats.debezium.postgres import postgres_field


@lru_cache(maxsize=16_384)
def field_of(kind: str, column: Column) -> FieldType:
    """Return the field of a column of a source of that kind."""
    return postgres_field(column) if kind == "postgres" else mysql_field(column)
