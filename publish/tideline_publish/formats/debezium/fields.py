"""What a column is in an event: its Connect schema, and its values as texts of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.types import Kind, LogicalType
from tideline_publish.formats.debezium.numbers import base64_decimals, base64_integer
from tideline_publish.formats.debezium.times import epoch, far_day, far_us, far_zoned, zoned
from tideline_publish.formats.json_values import json_strings, json_values

Schema = Mapping[str, Any]
"""A Connect schema in JSON, without ``optional`` and ``field``."""
ZERO_BYTES = base64_integer(0)
_MS_DIGITS = 3


def no_form(_text: str) -> str | None:
    """Return None: no such value has a form."""
    return None


@dataclass(frozen=True, slots=True)
class FieldType:
    """How the values of a type are written.

    ``texts``: a column of a part as texts of JSON, NULL where the column has NULL, or has a value
    that the type has no form of. ``overflow``: the same of one value that is kept as the source's
    text. ``zero``: what stands for a value that is not there, of a column that is never NULL.
    ``unavailable``: the text that stands for values which the log left out, in this type; None
    where it has none.
    """

    schema: Schema
    texts: Callable[[pa.Array], pa.StringArray]
    overflow: Callable[[str], str | None] = no_form
    zero: str = "0"
    unavailable: Callable[[str], str | None] = no_form


def named(kind: str, name: str, **parameters: str) -> Schema:
    """Return the schema of one of Connect's, or Debezium's, own types."""
    schema: dict[str, Any] = {"type": kind, "name": name, "version": 1}
    return {**schema, "parameters": parameters} if parameters else schema


def as_json(value: object) -> str:
    """Return ``value`` as JSON."""
    return msgspec.json.encode(value).decode()


def in_base64(text: str) -> str:
    """Return the bytes of ``text`` in Base64, in quotes."""
    return f'"{base64.b64encode(text.encode()).decode()}"'


def numbers(column: pa.Array) -> pa.StringArray:
    """Return numbers, and booleans, as they are written."""
    return column.cast(pa.string())


def each_text(convert: Callable[[str], str | None]) -> Callable[[pa.Array], pa.StringArray]:
    """Return what converts a column value by value: for types that are rare."""

    def texts(column: pa.Array) -> pa.StringArray:
        found = [None if one is None else convert(one) for one in column.to_pylist()]
        return pa.array(found, pa.string())

    return texts


def strings(name: str = "") -> FieldType:
    """Return the field of texts; ``name`` is that of their type."""
    schema = named("string", name) if name else {"type": "string"}
    return FieldType(schema, json_strings, as_json, '""', as_json)


def plain(kind: str) -> FieldType:
    """Return the field of numbers of one of Connect's types."""
    return FieldType({"type": kind}, numbers)


def decimals(logical: LogicalType) -> FieldType:
    """Return the field of decimals with a precision."""
    name = "org.apache.kafka.connect.data.Decimal"
    schema = decimal_schema(name, logical.scale, logical.precision)
    return FieldType(schema, base64_decimals, zero=ZERO_BYTES)


def decimal_schema(name: str, scale: int, precision: int) -> Schema:
    """Return the schema of decimals."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return named("bytes", name, **parameters)


def local_times(digits: int) -> FieldType:
    """Return the field of local times with so many digits of a second."""
    in_ms = digits <= _MS_DIGITS
    unit_us = 1_000 if in_ms else 1
    name = "io.debezium.time.Timestamp" if in_ms else "io.debezium.time.MicroTimestamp"

    def far(text: str) -> str | None:
        found = far_us(text)
        return None if found is None else str(found // unit_us)

    return FieldType(named("int64", name), lambda one: numbers(epoch(one, unit_us)), far)


def zoned_times(digits: int) -> FieldType:
    """Return the field of points in time with so many digits of a second."""

    def far(text: str) -> str | None:
        found = far_zoned(text, digits)
        return None if found is None else as_json(found)

    def texts(column: pa.Array) -> pa.StringArray:
        return json_strings(zoned(column, digits))

    zero = as_json(far_zoned("1970-01-01 00:00:00", digits))
    name = "io.debezium.time.ZonedTimestamp"
    return FieldType(named("string", name), texts, far, zero, as_json)


def dates() -> FieldType:
    """Return the field of dates."""

    def texts(column: pa.Array) -> pa.StringArray:
        return numbers(column.cast(pa.int32()))

    def far(text: str) -> str | None:
        found = far_day(text)
        return None if found is None else str(found)

    return FieldType(named("int32", "io.debezium.time.Date"), texts, far)


def raw_bytes() -> FieldType:
    """Return the field of bytes."""

    def texts(column: pa.Array) -> pa.StringArray:
        return pa.array(
            [
                None if one is None else f'"{base64.b64encode(one).decode()}"'
                for one in column.to_pylist()
            ],
            pa.string(),
        )

    return FieldType({"type": "bytes"}, texts, no_form, '""', in_base64)


def floats(kind: str, logical: LogicalType) -> FieldType:
    """Return the field of floating point numbers."""
    return FieldType({"type": kind}, lambda one: _null_kept(one, logical))


def _null_kept(column: pa.Array, logical: LogicalType) -> pa.StringArray:
    """Return the same texts as our own form, without a text for NULL."""
    texts = json_values(column, logical)
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def field_of_kind(logical: LogicalType, digits: int = 6) -> FieldType:
    """Return the field of a logical type. ``digits``: those of a second that its times have."""
    kind = logical.kind
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in (Kind.FLOAT32, Kind.FLOAT64):
        return floats("float" if kind is Kind.FLOAT32 else "double", logical)
    if kind is Kind.DECIMAL:
        return decimals(logical)
    if kind is Kind.BINARY:
        return raw_bytes()
    if kind is Kind.DATE:
        return dates()
    if kind is Kind.TIMESTAMP:
        return zoned_times(digits)
    return local_times(digits) if kind is Kind.TIMESTAMP_NTZ else strings()


_PLAIN: Mapping[Kind, FieldType] = {
    Kind.BOOLEAN: FieldType({"type": "boolean"}, numbers, zero="false"),
    Kind.INT8: plain("int16"),
    Kind.INT16: plain("int16"),
    Kind.INT32: plain("int32"),
    Kind.INT64: plain("int64"),
}
