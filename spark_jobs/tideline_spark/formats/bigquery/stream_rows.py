"""Rows of Spark's as messages of the Storage Write API, one for each key's change.

https://cloud.google.com/bigquery/docs/supported-data-types
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from tideline_spark.schemas import STRING_MAP
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import GONE, SEQUENCE_NUMBER

CHANGE_TYPE, CHANGE_NUMBER = "_CHANGE_TYPE", "_CHANGE_SEQUENCE_NUMBER"
"""BigQuery's own columns of rows that change others."""
UPSERT, DELETE = "UPSERT", "DELETE"
_COLUMN_NAME = 454_943_157
"""The option of a field that has its column's name, where that is no name of a field."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT = "Text"
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS: dict[type[types.DataType], Any] = {
    types.BooleanType: _Field.TYPE_BOOL,
    types.ByteType: _Field.TYPE_INT64,
    types.ShortType: _Field.TYPE_INT64,
    types.IntegerType: _Field.TYPE_INT64,
    types.LongType: _Field.TYPE_INT64,
    types.FloatType: _Field.TYPE_DOUBLE,
    types.DoubleType: _Field.TYPE_DOUBLE,
    types.StringType: _Field.TYPE_STRING,
    types.DecimalType: _Field.TYPE_STRING,
    types.BinaryType: _Field.TYPE_BYTES,
    types.DateType: _Field.TYPE_INT32,
    types.TimestampType: _Field.TYPE_INT64,
    types.TimestampNTZType: _Field.TYPE_STRING,
}
"""Dates are days, timestamps microseconds, of 1970 in UTC."""


class StreamedRows:
    """The messages for rows of a table with the columns ``schema`` and the declared ``key``.
    ``life``: its `CommitLog.life_column`, which no row has a value of."""

    def __init__(self, schema: types.StructType, key: Collection[str], life: str) -> None:
        self._schema, self._key = schema, frozenset(key)
        own = [_field(name, types.StringType()) for name in (CHANGE_TYPE, CHANGE_NUMBER)]
        columns = [*schema.fields, *own, _field(life, types.LongType())]
        self.descriptor = _described(columns)
        """What is sent to BigQuery of the messages."""
        self._message = _message_class(self.descriptor)

    def selected(self, rows: DataFrame) -> DataFrame:
        """Return ``rows`` as `messages` takes them: values in the forms of messages, where Python
        would not have each of Spark's."""
        listed = [_sent(one.name, one.dataType) for one in self._schema.fields]
        return rows.select(*listed, col(GONE), col(SEQUENCE_NUMBER))

    def messages(self, rows: Iterator[types.Row]) -> Iterator[tuple[bytes, bool]]:
        """Yield the message of each row of `selected`, and whether it deletes."""
        fields = [
            (at, one.name in self._key, _setter(one.dataType))
            for at, one in enumerate(self._schema.fields)
        ]
        width = len(fields)
        change_type, number = _numbered(width), _numbered(width + 1)
        for row in rows:
            message = self._message()
            gone = bool(row[width])
            for at, of_key, put in fields:
                if row[at] is not None and (of_key or not gone):
                    put(message, _numbered(at), row[at])
            setattr(message, change_type, DELETE if gone else UPSERT)
            setattr(message, number, row[width + 1])
            yield message.SerializeToString(), gone


def _sent(name: str, data_type: types.DataType) -> Column:
    value = col(name)
    if isinstance(data_type, types.TimestampType):
        value = F.unix_micros(value)
    elif isinstance(data_type, types.TimestampNTZType):
        value = value.cast("string")
    elif isinstance(data_type, types.DateType):
        value = F.unix_date(value)
    return value.alias(name)


def _field(name: str, data_type: types.DataType) -> types.StructField:
    return types.StructField(name, data_type)


def _described(columns: Sequence[types.StructField]) -> descriptor_pb2.DescriptorProto:
    """Return the description of messages with ``columns``, numbered from 1."""
    made = descriptor_pb2.DescriptorProto(name="Row")
    text = made.nested_type.add(name=_TEXT)
    for number, part in enumerate(("key", "value"), 1):
        text.field.add(
            name=part, number=number, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
        )
    for at, column in enumerate(columns):
        name, data_type = column.name, column.dataType
        field = made.field.add(number=at + 1, label=_Field.LABEL_OPTIONAL)
        if _PLAIN.fullmatch(name):
            field.name = name
        else:
            field.name = f"_tl_column_{at}"
            field.options.MergeFromString(_named(name))
        if data_type == STRING_MAP:
            field.label, field.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
            field.type_name = _TEXT
        elif isinstance(data_type, types.ArrayType):
            field.label, field.type = _Field.LABEL_REPEATED, _KINDS[type(data_type.elementType)]
        else:
            field.type = _KINDS[type(data_type)]
    return made


def _named(name: str) -> bytes:
    """Return the option `_COLUMN_NAME` as it is written: there is no class of it here."""
    value = name.encode()
    return _varint(_COLUMN_NAME << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _message_class(descriptor: descriptor_pb2.DescriptorProto) -> Any:
    """Return the class of messages whose fields are numbered: names of columns may be alike to
    Python, or words of its."""
    own = descriptor_pb2.DescriptorProto()
    own.CopyFrom(descriptor)
    for at, field in enumerate(own.field):
        field.name = _numbered(at)
        field.ClearField("options")
        if field.type == _Field.TYPE_MESSAGE:
            field.type_name = f".Row.{_TEXT}"
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", message_type=[own])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Row"))


def _numbered(at: int) -> str:
    return f"c{at}"


def _setter(data_type: types.DataType) -> Callable[[Any, str, Any], None]:
    if data_type == STRING_MAP:
        return _put_texts
    if isinstance(data_type, types.ArrayType):
        return lambda message, name, value: getattr(message, name).extend(value)
    if isinstance(data_type, types.DecimalType):
        return _put_decimal
    if isinstance(data_type, types.BinaryType):
        return lambda message, name, value: setattr(message, name, bytes(value))
    return setattr


def _put_decimal(message: Any, name: str, value: Decimal) -> None:
    setattr(message, name, format(value, "f"))


def _put_texts(message: Any, name: str, value: dict[str, str | None]) -> None:
    texts = getattr(message, name)
    for key, text in value.items():
        texts.add(key=key, value=text)
