"""Tideline's own events in Avro, by the wire format of Confluent's schema registry: a zero byte,
the schema's id, and the event.

An event has the members that it has in JSON. Columns that the log left out, and values that their
types cannot hold, are null and named in ``unchanged``, ``overflow`` and ``before_overflow``, which
are empty otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.manifest import Manifest, Truncate
from tideline.contract.part import (
    BEFORE,
    DELETED,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    SEQ,
    TS,
    TX,
    UNCHANGED,
)
from tideline.contract.schema import TableId, TableSchema, parse_table
from tideline.contract.types import INT64, STRING, TIMESTAMP
from tideline_publish.events import TRUNCATED
from tideline_publish.formats.avro.binary import (
    Piece,
    avro_values,
    joined,
    long_bytes,
    optional,
    scalar,
    text_bytes,
)
from tideline_publish.formats.avro.registry import SchemaIds
from tideline_publish.formats.avro.schemas import AvroSchema, event_schema, full_name, key_schema
from tideline_publish.formats.base import EncodedRows

_MAGIC = b"\x00"
_NONE = scalar(b"\x00")
"""A union's null, an empty array, an empty map."""
_SOME = scalar(b"\x02")
Subject = Callable[[TableId, AvroSchema, str], str]
"""Returns the subject of a table's schema; the last argument is ``key`` or ``value``."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """The bytes that keys and events of a table begin with."""

    key: bytes
    event: bytes


class AvroFormat:
    """See `EventFormat`."""

    tombstones = False

    def __init__(self, pipeline: str, ids: SchemaIds, subject: Subject) -> None:
        self._pipeline = pipeline
        self._ids = ids
        self._subject = subject
        self._heads: dict[tuple[str, tuple[str, ...]], _Heads] = {}

    def rows(
        self,
        manifest: Manifest,
        schema: TableSchema,
        columns: Sequence[str],
        rows: pa.RecordBatch,
    ) -> EncodedRows:
        """See `EventFormat`. Raises Misconfigured for a schema that the registry refuses,
        Unavailable where it does not answer."""
        heads = self._heads_of(schema, tuple(columns))
        values = joined(
            scalar(heads.event),
            avro_values(rows.column(OP), STRING),
            scalar(text_bytes(schema.table)),
            avro_values(rows.column(SEQ), INT64),
            avro_values(rows.column(TX), INT64),
            avro_values(rows.column(TS), TIMESTAMP),
            *_key(schema, rows),
            _row(schema, columns, rows),
            _before(schema, columns, rows),
            _marked(rows, UNCHANGED, _array),
            _marked(rows, OVERFLOW, _map),
            _marked(rows, IMAGE_OVERFLOW, _map),
        )
        keys: Sequence[bytes | None] = [None] * rows.num_rows
        if schema.key:
            keys = joined(scalar(heads.key), *_values(schema, schema.key, rows)).to_pylist()
        return EncodedRows(keys, values.to_pylist())

    def truncate(self, manifest: Manifest, schema: TableSchema, truncate: Truncate) -> bytes:
        """See `EventFormat`."""
        head = self._heads_of(schema, schema.column_names).event
        begin = text_bytes(TRUNCATED) + text_bytes(truncate.table)
        numbers = map(long_bytes, (truncate.seq, 0, manifest.through_us or 0))
        return head + begin + b"".join(numbers) + b"\x00" * 6

    def _heads_of(self, schema: TableSchema, columns: tuple[str, ...]) -> _Heads:
        at = schema.fingerprint, columns
        if at not in self._heads:
            event = self._head(schema, event_schema(self._pipeline, schema, columns), "value")
            key = b""
            if schema.key:
                key = self._head(schema, key_schema(self._pipeline, schema), "key")
            self._heads[at] = _Heads(key, event)
        return self._heads[at]

    def _head(self, schema: TableSchema, avro: AvroSchema, role: str) -> bytes:
        subject = self._subject(parse_table(schema.table), avro, role)
        return _MAGIC + self._ids.id_of(subject, avro).to_bytes(4, "big")


def record_subject(_table: TableId, avro: AvroSchema, _role: str) -> str:
    """Return a subject by the record's name."""
    return full_name(avro)


def _values(
    schema: TableSchema, names: Sequence[str], rows: pa.RecordBatch
) -> list[pa.BinaryArray]:
    return [avro_values(rows.column(one), schema.column(one).logical) for one in names]


def _key(schema: TableSchema, rows: pa.RecordBatch) -> list[Piece]:
    return [_SOME, *_values(schema, schema.key, rows)] if schema.key else [_NONE]


def _row(schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch) -> Piece:
    """Return the rows as they are; null of deleted ones."""
    fields = map(optional, _values(schema, columns, rows))
    found = joined(pa.repeat(_SOME, rows.num_rows), *fields)
    deleted = pc.equal(rows.column(OP), DELETED)
    return pc.if_else(deleted, _NONE, found) if pc.any(deleted).as_py() else found


def _before(schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch) -> Piece:
    """Return the rows before, where the log has them; those of the key are the row's own, where the
    update did not change them."""
    if IMAGE not in rows.schema.names:
        return _NONE
    imaged = pc.fill_null(rows.column(IMAGE), False)
    fields = []
    for name in columns:
        values = rows.column(BEFORE + name) if BEFORE + name in rows.schema.names else None
        if name in schema.key:
            own = rows.column(name)
            values = own if values is None else pc.coalesce(values, own)
        fields.append(optional(avro_values(values, schema.column(name).logical)))
    return pc.if_else(imaged, joined(pa.repeat(_SOME, rows.num_rows), *fields), _NONE)


def _marked(rows: pa.RecordBatch, name: str, encode: Callable[[Any], bytes]) -> Piece:
    """Return what a column of marks has, which few rows have any of."""
    if name not in rows.schema.names or rows.column(name).null_count == rows.num_rows:
        return _NONE
    found = [encode(one) if one else b"\x00" for one in rows.column(name).to_pylist()]
    return pa.array(found, pa.binary())


def _array(names: Sequence[str]) -> bytes:
    return long_bytes(len(names)) + b"".join(map(text_bytes, names)) + b"\x00"


def _map(texts: Sequence[tuple[str, str]]) -> bytes:
    body = (text_bytes(name) + text_bytes(text) for name, text in texts)
    return long_bytes(len(texts)) + b"".join(body) + b"\x00"
