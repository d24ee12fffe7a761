"""Events in Avro as a consumer reads them: by fastavro, and the schemas of a registry."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np

from tideline_publish.formats.avro.registry import UnregisteredIds
from tideline_publish.formats.avro.schemas import AvroSchema

MAGIC = 0
_TIMES = ("date", "timestamp-micros", "local-timestamp-micros")
"""Read as the numbers that they are: Python's own have no year beyond 9999, or before 1."""


class Ids(UnregisteredIds):
    """Has the schemas by their ids, and the subjects that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.schemas: dict[int, AvroSchema] = {}
        self.subjects: list[str] = []

    def id_of(self, subject: str, schema: AvroSchema) -> int:
        found = super().id_of(subject, schema)
        self.schemas[found] = schema
        self.subjects.append(subject)
        return found


class AvroReader:
    """Reads keys and values by the ids that they begin with. ``schemas`` are a registry's."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self._schemas = schemas
        self._parsed: dict[int, Any] = {}

    def read(self, raw: bytes) -> Any:
        """The value, as fastavro has it, but for times."""
        return self._decoded(raw)[1]

    def as_json(self, raw: bytes) -> Any:
        """The value, with the forms that Tideline's JSON has for values of those types."""
        schema, value = self._decoded(raw)
        return _shown(value, schema, _named(schema))

    def _decoded(self, raw: bytes) -> tuple[Any, Any]:
        assert raw[0] == MAGIC
        number = int.from_bytes(raw[1:5], "big")
        if number not in self._parsed:
            self._parsed[number] = fastavro.parse_schema(_plain(self._schemas[number]))
        body = io.BytesIO(raw[5:])
        value = fastavro.schemaless_reader(body, self._parsed[number])
        assert not body.read(), "there is more behind the value"
        return self._schemas[number], value


def event_as_json(reader: AvroReader, raw: bytes) -> dict[str, Any]:
    """An event with the members that it has in JSON: what is null or empty is left out, and so are
    columns without a value that the event names."""
    event = {name: one for name, one in reader.as_json(raw).items() if one not in (None, [], {})}
    marked = {*event.get("unchanged", ()), *event.get("overflow", ())}
    for member, left_out in (("row", marked), ("before", set(event.get("before_overflow", ())))):
        if member in event:
            assert all(event[member].get(name) is None for name in left_out)
            kept = {name: one for name, one in event[member].items() if name not in left_out}
            event[member] = kept
    return event


def _plain(schema: Any) -> Any:
    """The schema without the logical types of times."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") in _TIMES:
        return schema["type"]
    return {name: _plain(one) for name, one in schema.items()}


def _named(schema: Any) -> dict[str, Any]:
    """The records in a schema, by their names."""
    if isinstance(schema, list):
        return {name: one for each in schema for name, one in _named(each).items()}
    if not isinstance(schema, dict) or schema["type"] != "record":
        return {}
    return {schema["name"]: schema, **_named([one["type"] for one in schema["fields"]])}


def _shown(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    """A value in the form of JSON, by its type."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return None if value is None else _shown(value, schema[1], named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {
            one.get("tideline.name", one["name"]): _shown(value[one["name"]], one["type"], named)
            for one in schema["fields"]
        }
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical in _TIMES:
        return _time(value, logical)
    if logical == "decimal":
        assert isinstance(value, Decimal)
        return format(value, "f")
    if logical == "uuid":
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _number(value, kind) if isinstance(value, float) else value


def _time(value: int, logical: str) -> str:
    if logical == "date":
        return str(np.datetime64(value, "D"))
    return str(np.datetime64(value, "us")) + ("Z" if logical == "timestamp-micros" else "")


def _number(value: float, kind: str) -> Any:
    if not math.isfinite(value):
        return json.dumps(value)
    return float(str(np.float32(value))) if kind == "float" else value
