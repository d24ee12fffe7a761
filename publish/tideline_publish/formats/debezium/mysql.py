"""The types of MySQL and MariaDB, by the text that our schemas have for them."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.schema import Column
from tideline.contract.types import Kind
from tideline_publish.formats.debezium.fields import (
    ZERO_BYTES,
    FieldType,
    Schema,
    as_json,
    decimal_schema,
    each_text,
    field_of_kind,
    named,
    numbers,
    strings,
)
from tideline_publish.formats.debezium.numbers import decimals_of_texts
from tideline_publish.formats.debezium.times import clock_us
from tideline_publish.formats.json_values import json_strings

_TYPE = re.compile(r"(?P<name>[a-z0-9]+)(?:\((?P<first>\d+)(?:,(?P<second>\d+))?\))?(?P<rest>.*)")
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_SRID_BYTES = 4


def mysql_field(column: Column) -> FieldType:
    """Return the field of a column."""
    text = column.source_type
    if text.startswith(("enum(", "set(")):
        return _labels(text)
    match = _TYPE.match(text)
    if match is None:
        return field_of_kind(column.logical)
    name, first = match["name"], int(match["first"] or 0)
    if column.logical.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        return field_of_kind(column.logical, first)
    if name == "decimal" and column.logical.kind is Kind.STRING:
        schema = decimal_schema(_DECIMAL, int(match["second"] or 0), first)
        return FieldType(schema, lambda texts: decimals_of_texts(texts)[0], zero=ZERO_BYTES)
    if name == "bit":
        return _bits(first)
    if name == "bigint" and column.logical.kind is Kind.DECIMAL:
        return FieldType({"type": "int64"}, _unsigned)
    return _BY_NAME.get(name) or field_of_kind(column.logical)


def _labels(text: str) -> FieldType:
    """Return the field of an ENUM or SET: its schema lists the labels, commas escaped."""
    found = [label.replace("''", "'") for label in _LABEL.findall(text)]
    allowed = ",".join(label.replace(",", "\\,") for label in found)
    name = "io.debezium.data.Enum" if text.startswith("enum") else "io.debezium.data.EnumSet"
    return FieldType(named("string", name, allowed=allowed), json_strings, as_json, '""', as_json)


def _bits(length: int) -> FieldType:
    if length <= 1:
        return FieldType(
            {"type": "boolean"}, lambda texts: numbers(pc.equal(texts, "1")), zero="false"
        )
    size = -(-length // 8)

    def text(bits: str) -> str:
        raw = int(bits, 2).to_bytes(size, "little")
        return f'"{base64.b64encode(raw).decode()}"'

    schema = named("bytes", "io.debezium.data.Bits", length=str(length))
    return FieldType(schema, each_text(text), zero=text("0"))


def _unsigned(column: pa.Array) -> pa.StringArray:
    """Return unsigned integers of 64 bits as signed ones of the same bits."""
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    low = words[column.offset : column.offset + len(column), 0]
    return pc.if_else(column.is_valid(), pa.array(low).cast(pa.string()), _NO_TEXT)


_NO_TEXT = pa.scalar(None, pa.string())


def _geometries(column: pa.Array) -> pa.StringArray:
    """Return geometries, which a part has as their system's number and WKB."""
    found = [None if one is None else _geometry(one) for one in column.to_pylist()]
    return pa.array(found, pa.string())


def _geometry(raw: bytes) -> str:
    srid = int.from_bytes(raw[:_SRID_BYTES], "little")
    wkb = base64.b64encode(raw[_SRID_BYTES:]).decode()
    return f'{{"wkb":"{wkb}","srid":{srid or "null"}}}'


_GEOMETRY: Schema = {
    "type": "struct",
    "fields": [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Geometry",
    "version": 1,
    "doc": "Geometry",
}
_BY_NAME: Mapping[str, FieldType] = {
    "time": FieldType(
        named("int64", "io.debezium.time.MicroTime"), lambda texts: numbers(clock_us(texts))
    ),
    "year": FieldType(named("int32", "io.debezium.time.Year"), numbers),
    "json": strings("io.debezium.data.Json"),
    "uuid": strings("io.debezium.data.Uuid"),
    "geometry": FieldType(_GEOMETRY, _geometries, zero='{"wkb":"","srid":null}'),
}
