"""The Connect schemas of a table's keys and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tideline.contract.schema import TableSchema
from tideline_publish.formats.debezium.fields import FieldType, Schema
from tideline_publish.formats.debezium.source import source_schema

_TRANSACTION = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ],
    "optional": True,
    "name": "event.block",
    "version": 1,
    "field": "transaction",
}


def key_schema(name: str, schema: TableSchema, fields: Mapping[str, FieldType]) -> Schema:
    """Return the schema of keys; ``name`` is the table's, with the prefix."""
    return {
        "type": "struct",
        "fields": _members(schema, schema.key, fields),
        "optional": False,
        "name": f"{name}.Key",
    }


def event_schema(
    name: str, kind: str, schema: TableSchema, fields: Mapping[str, FieldType]
) -> Schema:
    """Return the schema of the events of a table in a source of that kind."""
    row = {
        "type": "struct",
        "fields": _members(schema, tuple(fields), fields),
        "optional": True,
        "name": f"{name}.Value",
    }
    times = [{"type": "int64", "optional": True, "field": f"ts_{unit}"} for unit in _UNITS]
    return {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            source_schema(kind),
            _TRANSACTION,
            {"type": "string", "optional": False, "field": "op"},
            *times,
        ],
        "optional": False,
        "name": f"{name}.Envelope",
        "version": 2,
    }


_UNITS = ("ms", "us", "ns")


def _members(
    schema: TableSchema, names: Sequence[str], fields: Mapping[str, FieldType]
) -> list[Mapping[str, Any]]:
    return [
        {**fields[name].schema, "optional": schema.column(name).nullable, "field": name}
        for name in names
    ]
