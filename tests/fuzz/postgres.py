"""Targets: what PostgreSQL's pgoutput writes, and the texts of its values."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import cast

import pyarrow as pa

from tests.fuzz.target import Target
from tideline.contract.errors import CorruptData
from tideline.contract.schema import Column, TableSchema
from tideline.contract.types import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT64,
    INT16,
    INT64,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal,
)
from tideline_capture.arrow_types import arrow_type
from tideline_capture.core.events import SchemaSeen
from tideline_capture.sources.postgres.replication.pgoutput import Relation, parse_message
from tideline_capture.sources.postgres.replication.relations import Relations
from tideline_capture.sources.postgres.replication.transactions import TransactionReader
from tideline_capture.sources.postgres.snapshot.copy import chunk_from_csv
from tideline_capture.sources.postgres.types import PgType, logical_type, to_arrow
from tideline_capture.sources.postgres.watermarks import parse_watermark
from tideline_capture.sources.watermark_key import WatermarkKey

KEY = WatermarkKey("5f0c")
TYPES = (BOOLEAN, BINARY, INT16, INT64, FLOAT64, decimal(12, 2), DATE, TIMESTAMP, TIMESTAMP_NTZ)


class _Message:
    def __init__(self, payload: bytes, at: int) -> None:
        self.payload = payload
        self.data_start = at


class _Cursor:
    """A replication cursor that has these messages, and then nothing."""

    def __init__(self, messages: Iterable[bytes]) -> None:
        self._messages = iter([_Message(one, 4096 + at) for at, one in enumerate(messages)])

    def read_message(self) -> _Message | None:
        return next(self._messages, None)


class _Relations:
    """Relations by their messages alone; their types are those of the log."""

    def __init__(self) -> None:
        self._schemas: dict[int, TableSchema] = {}

    def observe(self, relation: Relation, xid: int) -> SchemaSeen:
        columns = []
        for one in relation.columns:
            known = PgType(one.type_oid, one.typmod, "t", one.type_oid, one.typmod)
            columns.append(Column(one.name, str(logical_type(known)), "t", not one.key))
        key = tuple(one.name for one in relation.columns if one.key)
        schema = TableSchema(f"{relation.schema}.{relation.name}", tuple(columns), key)
        self._schemas[relation.oid] = schema
        return SchemaSeen(schema, xid)

    def schema(self, oid: int) -> TableSchema:
        if oid not in self._schemas:
            raise CorruptData(f"the log has rows of relation {oid}, which it did not describe")
        return self._schemas[oid]


def split_messages(data: bytes) -> Iterator[bytes]:
    """Messages, each behind its length in two bytes; the last may be cut."""
    at = 0
    while at + 2 <= len(data):
        (length,) = struct.unpack_from(">H", data, at)
        yield data[at + 2 : at + 2 + length]
        at += 2 + length


def framed(messages: Iterable[bytes]) -> bytes:
    """An input of `read_stream`."""
    return b"".join(struct.pack(">H", len(one)) + one for one in messages)


def read_stream(data: bytes) -> None:
    """The whole reader over a stream, in batches of 40 messages."""
    cursor = _Cursor(split_messages(data))
    reader = TransactionReader(
        cursor,
        cast(Relations, _Relations()),
        key=KEY,
        captures=lambda table: "other" not in table,
        images=lambda table: True,
        messages=("outbox", "other"),
    )
    seq = 1
    while reader.poll(40, until_commit=False):
        seq += reader.take(seq).changes


def read_values(data: bytes) -> None:
    """A byte for the type, then texts behind NULs: what is told is told, nothing is an error."""
    logical = TYPES[data[0] % len(TYPES)] if data else STRING
    texts = pa.array(data[1:].split(b"\0"), pa.binary())
    found = to_arrow(texts, logical)
    assert len(found.values) == len(texts)
    assert found.values.type == arrow_type(logical)


def read_copy(data: bytes) -> None:
    """What COPY gives of a chunk."""
    columns = [Column("id", "int64", "bigint", False)]
    columns += [Column(f"c{at}", str(one), "t", True) for at, one in enumerate(TYPES)]
    chunk_from_csv(data, columns)


def read_mark(data: bytes) -> None:
    """What anybody may send: never an error."""
    parse_watermark("tideline", data, KEY)


TARGETS = (
    Target(
        "pgoutput",
        read_stream,
        place=re.compile(r"[0-9A-F]+/[0-9A-F]+"),
        length_max=8_192,
    ),
    Target("pgmessage", parse_message),
    Target("pgvalues", read_values, allows=()),
    Target("pgcopy", read_copy),
    Target("pgmarks", read_mark, allows=()),
)
