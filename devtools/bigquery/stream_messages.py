"""The rows of a request of the Storage Write API: checked against the table that they change."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import grpc
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_STREAM = re.compile(r"projects/([^/]+)/datasets/([^/]+)/tables/([^/]+)/streams/_default")
_NUMBER = re.compile(r"[0-9A-Fa-f]{1,16}(/[0-9A-Fa-f]{1,16}){0,3}")
_OWN = ("_CHANGE_TYPE", "_CHANGE_SEQUENCE_NUMBER")
_KEY_COLUMNS_MAX = 16
_COLUMN_NAME = 454_943_157
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "INTEGER": {_Field.TYPE_INT64, _Field.TYPE_INT32},
    "INT64": {_Field.TYPE_INT64, _Field.TYPE_INT32},
    "FLOAT": {_Field.TYPE_DOUBLE},
    "FLOAT64": {_Field.TYPE_DOUBLE},
    "BOOLEAN": {_Field.TYPE_BOOL},
    "BOOL": {_Field.TYPE_BOOL},
    "STRING": {_Field.TYPE_STRING},
    "BYTES": {_Field.TYPE_BYTES},
    "NUMERIC": {_Field.TYPE_STRING},
    "BIGNUMERIC": {_Field.TYPE_STRING},
    "DATE": {_Field.TYPE_INT32},
    "TIMESTAMP": {_Field.TYPE_INT64},
    "DATETIME": {_Field.TYPE_STRING},
    "RECORD": {_Field.TYPE_MESSAGE},
    "STRUCT": {_Field.TYPE_MESSAGE},
}
_DAY_0 = date(1970, 1, 1)
_MOMENT_0 = datetime(1970, 1, 1, tzinfo=UTC)


class StreamError(Exception):
    """A request is refused; ``code`` is BigQuery's own, 0 for none."""

    def __init__(self, status: grpc.StatusCode, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class RowError(Exception):
    """``rows``, by their places, are refused, and with them the request."""

    def __init__(self, rows: list[tuple[int, str]]) -> None:
        super().__init__("rows are refused")
        self.rows = rows


@dataclass(frozen=True, slots=True)
class StreamedRow:
    """One row: ``values`` by column, NULL where it has none, and its number's sections."""

    delete: bool
    number: tuple[int, ...]
    values: Mapping[str, Any]


class Messages:
    """The messages of a connection, as its first ``request`` describes them."""

    def __init__(self, request: Any) -> None:
        found = _STREAM.fullmatch(request.write_stream)
        if found is None:
            raise _invalid(f"no default stream: {request.write_stream}")
        self.table = (found[1], found[2], found[3])
        descriptor = request.proto_rows.writer_schema.proto_descriptor
        self._fields = [(_column_name(one), one) for one in descriptor.field]
        self._message = _message_class(descriptor)

    def rows(
        self, serialized: Sequence[bytes], table: Sequence[Mapping[str, Any]], key: Sequence[str]
    ) -> list[StreamedRow]:
        """Return the rows, for a table with the columns ``table`` and the declared ``key``."""
        self._check(table, key)
        known = {one["name"].lower(): one for one in table}
        found, wrong = [], []
        for at, one in enumerate(serialized):
            try:
                found.append(self._row(one, known, key))
            except (ValueError, KeyError) as error:
                wrong.append((at, str(error)))
        if wrong:
            raise RowError(wrong)
        return found

    def _check(self, table: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
        if not 1 <= len(key) <= _KEY_COLUMNS_MAX:
            raise _invalid("the table has no primary key that a change could be by")
        names = [name for name, _ in self._fields]
        if any(own not in names for own in _OWN):
            raise _invalid("rows have no _CHANGE_TYPE, or no _CHANGE_SEQUENCE_NUMBER")
        known = {one["name"].lower(): one for one in table}
        for name, field in self._fields:
            if name in _OWN:
                continue
            column = known.get(name.lower())
            if column is None:
                code = types.StorageError.StorageErrorCode.SCHEMA_MISMATCH_EXTRA_FIELDS
                raise StreamError(grpc.StatusCode.INVALID_ARGUMENT, f"no column {name}", int(code))
            repeated = field.label == _Field.LABEL_REPEATED
            if repeated is not (column.get("mode") == "REPEATED"):
                raise _invalid(f"{name} is an array in one of both alone")
            if field.type not in _KINDS[column["type"]]:
                raise _invalid(f"{name} is {column['type']}, not of type {field.type}")

    def _row(
        self, serialized: bytes, known: Mapping[str, Mapping[str, Any]], key: Sequence[str]
    ) -> StreamedRow:
        message = self._message.FromString(serialized)
        given = {
            name: getattr(message, f"f{at}")
            for at, (name, field) in enumerate(self._fields)
            if field.label == _Field.LABEL_REPEATED or message.HasField(f"f{at}")
        }
        change, number = given.pop(_OWN[0], None), given.pop(_OWN[1], "")
        if change not in ("UPSERT", "DELETE"):
            raise ValueError("The given value is not a valid CHANGE_TYPE")
        if not _NUMBER.fullmatch(number):
            raise ValueError(f"no _CHANGE_SEQUENCE_NUMBER: {number!r}")
        values = {
            known[name.lower()]["name"]: _value(known[name.lower()]["type"], value)
            for name, value in given.items()
        }
        if any(values.get(name) is None for name in key):
            raise ValueError("a column of the key has no value")
        sections = tuple(int(one, 16) for one in number.split("/"))
        return StreamedRow(change == "DELETE", sections, values)


def _invalid(message: str) -> StreamError:
    return StreamError(grpc.StatusCode.INVALID_ARGUMENT, message)


def _column_name(field: Any) -> str:
    """Return the name of a field's column, which an option of the field may have."""
    raw, at = field.options.SerializeToString(), 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag & 7 != 2:
            break
        size, at = _varint(raw, at)
        if tag >> 3 == _COLUMN_NAME:
            return str(raw[at : at + size].decode())
        at += size
    return str(field.name)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (raw[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not raw[at - 1] & 0x80:
            return number, at


def _message_class(descriptor: Any) -> Any:
    own = descriptor_pb2.DescriptorProto()
    own.CopyFrom(descriptor)
    names = [one.name for one in own.field]
    if len({name.lower() for name in names}) < len(names):
        raise _invalid("two fields have one name")
    for at, field in enumerate(own.field):
        field.name = f"f{at}"
        field.ClearField("options")
        if field.type == _Field.TYPE_MESSAGE:
            field.type_name = f".{own.name}.{field.type_name.rpartition('.')[2]}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(name="row.proto", message_type=[own]))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(own.name))


def _value(kind: str, value: Any) -> Any:
    if kind in ("RECORD", "STRUCT"):
        return [
            {"key": one.key, "value": one.value if one.HasField("value") else None} for one in value
        ]
    if isinstance(value, str):
        if kind in ("NUMERIC", "BIGNUMERIC"):
            return Decimal(value)
        if kind == "DATETIME":
            return datetime.fromisoformat(value)
        return value
    if kind == "DATE":
        return _DAY_0 + timedelta(days=value)
    if kind == "TIMESTAMP":
        return _MOMENT_0 + timedelta(microseconds=value)
    if isinstance(value, bool | int | float | bytes):
        return value
    return list(value)
