"""The types of PostgreSQL, by the text that `format_type` has for them."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.schema import Column
from tideline.contract.types import Kind
from tideline_publish.formats.debezium.arrays import array_field
from tideline_publish.formats.debezium.fields import (
    ZERO_BYTES,
    FieldType,
    as_json,
    decimal_schema,
    each_text,
    field_of_kind,
    local_times,
    named,
    numbers,
    strings,
    zoned_times,
)
from tideline_publish.formats.debezium.hstore import hstore_pairs
from tideline_publish.formats.debezium.numbers import (
    base64_decimals,
    decimals_of_texts,
    variable_scale,
)
from tideline_publish.formats.debezium.times import clock_ms, clock_us, interval_us, zoned_clock

_TYPE = re.compile(
    r"(?P<name>[^()\[\]]+?)\s*(?:\((?P<first>-?\d+)(?:,(?P<second>-?\d+))?\))?"
    r"(?P<rest>[a-z ]*)(?P<array>(?:\[\])*)"
)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_NO_END = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
"""Times without an end, in microseconds, as PostgreSQL's driver for Java has them."""
_MONEY_SCALE = 2


def postgres_field(column: Column) -> FieldType:
    """Return the field of a column."""
    match = _TYPE.fullmatch(column.source_type)
    if match is None:
        return field_of_kind(column.logical)
    first, second = (None if one is None else int(one) for one in match.group("first", "second"))
    name = (match["name"] + match["rest"]).replace("  ", " ").strip()
    if match["array"]:
        return array_field(name, first, second)
    kind = column.logical.kind
    digits = 6 if first is None else first
    if kind is Kind.TIMESTAMP:
        return _with_ends(zoned_times(digits), as_json)
    if kind is Kind.TIMESTAMP_NTZ:
        unit_us = 1_000 if digits <= 3 else 1
        return _with_ends(local_times(digits), lambda text: str(_NO_END[text] // unit_us))
    if kind is not Kind.STRING:
        return field_of_kind(column.logical)
    return _string_field(name, first, second)


def _with_ends(field: FieldType, end: Callable[[str], str]) -> FieldType:
    def overflow(text: str) -> str | None:
        return end(text) if text in _NO_END else field.overflow(text)

    return FieldType(field.schema, field.texts, overflow, field.zero, field.unavailable)


def _string_field(name: str, first: int | None, second: int | None) -> FieldType:
    """Return the field of a type that parts hold as text."""
    if name == "numeric":
        return _numeric(first, second)
    if name == "time without time zone":
        return _clock(6 if first is None else first)
    if name in ("bit", "bit varying"):
        return _bits(name, first)
    bare = name.rpartition(".")[2]
    return _BY_NAME.get(name) or _BY_EXTENSION.get(bare) or strings()


def _numeric(precision: int | None, scale: int | None) -> FieldType:
    """Return the field of numbers without bounds, or with more digits than decimals have."""
    if precision is None:
        return FieldType(_VARIABLE_SCALE, variable_scale, zero=_NO_NUMBER)
    schema = decimal_schema(_DECIMAL, max(scale or 0, 0), precision)
    return FieldType(schema, lambda texts: decimals_of_texts(texts)[0], zero=ZERO_BYTES)


_VARIABLE_SCALE = {
    "type": "struct",
    "fields": [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
    "name": "io.debezium.data.VariableScaleDecimal",
    "version": 1,
    "doc": "Variable scaled decimal",
}
_NO_NUMBER = f'{{"scale":0,"value":{ZERO_BYTES}}}'


def _clock(digits: int) -> FieldType:
    if digits <= 3:
        schema = named("int32", "io.debezium.time.Time")
        return FieldType(schema, lambda texts: numbers(clock_ms(texts)))
    schema = named("int64", "io.debezium.time.MicroTime")
    return FieldType(schema, lambda texts: numbers(clock_us(texts)))


def _bits(name: str, length: int | None) -> FieldType:
    if name == "bit" and length in (None, 1):
        return FieldType(
            {"type": "boolean"}, lambda texts: numbers(pc.equal(texts, "1")), zero="false"
        )
    schema = named("bytes", "io.debezium.data.Bits", length=str(length or 2**31 - 1))
    return FieldType(schema, each_text(bits_text), zero='""')


def bits_text(text: str) -> str:
    """Return the bits of a text of 0 and 1: bytes from the last to the first, as few as hold
    them."""
    raw = int(text or "0", 2).to_bytes(len(text) // 8 + 1, "little").rstrip(b"\0")
    return f'"{base64.b64encode(raw).decode()}"'


def _money(texts: pa.StringArray) -> pa.StringArray:
    plain = pc.replace_substring_regex(texts, r"[$,]", "")
    return base64_decimals(plain.cast(pa.decimal128(38, _MONEY_SCALE)))


def _interval(text: str) -> str | None:
    found = interval_us(text)
    return None if found is None else str(found)


def _zoned_clock(text: str) -> str | None:
    found = zoned_clock(text)
    return None if found is None else as_json(found)


def _point(text: str) -> str | None:
    """Return a point with its coordinates; one that has no finite ones has no form in JSON."""
    x, _, y = text.strip("()").partition(",")
    raw = struct.pack("<BIdd", 1, 1, float(x), float(y))
    if not all(abs(float(one)) < float("inf") for one in (x, y)):
        return None
    wkb = base64.b64encode(raw).decode()
    return f'{{"x":{as_json(float(x))},"y":{as_json(float(y))},"wkb":"{wkb}","srid":null}}'


def _hstore(text: str) -> str | None:
    pairs = hstore_pairs(text)
    return None if pairs is None else as_json(as_json(pairs))


POINT_SCHEMA = {
    "type": "struct",
    "fields": [
        {"type": "double", "optional": False, "field": "x"},
        {"type": "double", "optional": False, "field": "y"},
        {"type": "bytes", "optional": True, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "name": "io.debezium.data.geometry.Point",
    "version": 1,
    "doc": "Geometry (POINT)",
}
_JSON = "io.debezium.data.Json"
_BY_NAME: Mapping[str, FieldType] = {
    "time with time zone": FieldType(
        named("string", "io.debezium.time.ZonedTime"),
        each_text(_zoned_clock),
        zero='"00:00:00Z"',
        unavailable=as_json,
    ),
    "interval": FieldType(named("int64", "io.debezium.time.MicroDuration"), each_text(_interval)),
    "money": FieldType(named("bytes", _DECIMAL, scale=str(_MONEY_SCALE)), _money, zero=ZERO_BYTES),
    "uuid": strings("io.debezium.data.Uuid"),
    "json": strings(_JSON),
    "jsonb": strings(_JSON),
    "xml": strings("io.debezium.data.Xml"),
    "tsvector": strings("io.debezium.data.Tsvector"),
    "point": FieldType(POINT_SCHEMA, each_text(_point), zero="null"),
}
_BY_EXTENSION: Mapping[str, FieldType] = {
    "hstore": FieldType(
        named("string", _JSON), each_text(_hstore), zero='"{}"', unavailable=as_json
    ),
    "ltree": strings("io.debezium.data.Ltree"),
}
