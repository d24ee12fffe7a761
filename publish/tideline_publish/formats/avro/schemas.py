"""The Avro schemas of a table's keys and events.

Every column of a row may be null, and null is its default: a column that is added or dropped makes
a schema that is compatible with the one before, in both directions. Columns of a key are never
null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tideline.contract.schema import Column, TableSchema, parse_table
from tideline.contract.types import Kind
from tideline_publish.formats.avro.names import avro_name

ORIGINAL_NAME = "tideline.name"
"""The property of a field or record with its name at the source, where Avro has another."""
EVENT, KEY, ROW = "Event", "Key", "Row"
AvroSchema = Mapping[str, Any]
_OPTIONAL_TEXTS = {"type": "map", "values": "string"}
_TYPES: Mapping[Kind, str | AvroSchema] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT8: "int",
    Kind.INT16: "int",
    Kind.INT32: "int",
    Kind.INT64: "long",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.STRING: "string",
    Kind.BINARY: "bytes",
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_UUID = {"type": "string", "logicalType": "uuid"}


def key_schema(pipeline: str, schema: TableSchema) -> AvroSchema:
    """Return the schema of keys of a table that has one."""
    fields = [_field(schema.column(name), of_key=True) for name in schema.key]
    return {**_record(pipeline, schema, KEY), "fields": fields}


def event_schema(pipeline: str, schema: TableSchema, columns: Sequence[str]) -> AvroSchema:
    """Return the schema of events that show ``columns``."""
    row = {
        "type": "record",
        "name": ROW,
        "fields": [_field(schema.column(name)) for name in columns],
    }
    key = key_schema(pipeline, schema)
    del key["namespace"]  # type: ignore[attr-defined]  # It has that of the event.
    return {
        **_record(pipeline, schema, EVENT),
        "fields": [
            {"name": "op", "type": "string"},
            {"name": "table", "type": "string"},
            {"name": "seq", "type": "long"},
            {"name": "tx", "type": "long"},
            {"name": "at", "type": _TYPES[Kind.TIMESTAMP]},
            {"name": "key", "type": ["null", key], "default": None},
            {"name": "row", "type": ["null", row], "default": None},
            {"name": "before", "type": ["null", ROW], "default": None},
            {"name": "unchanged", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "overflow", "type": _OPTIONAL_TEXTS, "default": {}},
            {"name": "before_overflow", "type": _OPTIONAL_TEXTS, "default": {}},
        ],
    }


def full_name(schema: AvroSchema) -> str:
    """Return the name of a record with its namespace."""
    return f"{schema['namespace']}.{schema['name']}"


def _record(pipeline: str, schema: TableSchema, name: str) -> dict[str, Any]:
    table = parse_table(schema.table)
    parts = (pipeline, table.schema, table.name)
    namespace = ".".join(map(avro_name, parts))
    found: dict[str, Any] = {"type": "record", "name": name, "namespace": namespace}
    if namespace != ".".join(parts):
        found[ORIGINAL_NAME] = schema.table
    return found


def _field(column: Column, *, of_key: bool = False) -> dict[str, Any]:
    name = avro_name(column.name)
    found: dict[str, Any] = {"name": name}
    if name != column.name:
        found[ORIGINAL_NAME] = column.name
    if of_key:
        return {**found, "type": _type(column)}
    return {**found, "type": ["null", _type(column)], "default": None}


def _type(column: Column) -> str | AvroSchema:
    logical = column.logical
    if logical.kind is Kind.DECIMAL:
        digits = {"precision": logical.precision, "scale": logical.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if column.source_type == "uuid" and logical.kind is Kind.STRING:
        return _UUID
    return _TYPES[logical.kind]
