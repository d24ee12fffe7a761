"""The block ``source`` of an event: where a change comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.manifest import Manifest
from tideline.contract.part import DUMPED, OP, SEQ, TS, TX
from tideline.contract.position import MysqlPosition, PostgresPosition
from tideline.contract.schema import TableId
from tideline_publish.formats.debezium.fields import Schema, as_json, named

VERSION = "tideline"
"""What ``version`` is: it is not one of Debezium's."""
_CONNECTORS = {"postgres": "postgresql"}
"""Debezium's names of connectors, where they are not our kinds of sources."""
_SNAPSHOT = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
Piece = pa.StringScalar | pa.StringArray


@dataclass(frozen=True, slots=True)
class Source:
    """The block of the events of a table in a manifest. ``prefix`` is Debezium's topic prefix."""

    manifest: Manifest
    table: TableId
    prefix: str

    def texts(self, rows: pa.RecordBatch, notes: pa.StringArray) -> list[Piece]:
        """Return the pieces of the blocks of ``rows``; ``notes`` are the members at the end."""
        seq = rows.column(SEQ).cast(pa.string())
        us = rows.column(TS).cast(pa.int64())
        dumped = pc.equal(rows.column(OP), DUMPED)
        snapshot = pc.if_else(dumped, '"incremental"', '"false"')
        tx = pc.if_else(dumped, "null", rows.column(TX).cast(pa.string()))
        return self._pieces(seq, us, snapshot, tx, notes)

    def text(self, seq: int, us: int) -> str:
        """Return the block of an event of the whole table."""
        one = self._pieces(
            pa.array([str(seq)]),
            pa.array([us]),
            pa.array(['"false"']),
            pa.array(["null"]),
            pa.array([""]),
        )
        text: str = pc.binary_join_element_wise(*one, "")[0].as_py()
        return text

    def _pieces(
        self,
        seq: pa.StringArray,
        us: pa.Int64Array,
        snapshot: pa.StringArray,
        tx: pa.StringArray,
        notes: pa.StringArray,
    ) -> list[Piece]:
        kind = self.manifest.identity.kind
        connector = as_json(_CONNECTORS.get(kind, kind))
        head = f'{{"version":{as_json(VERSION)},"connector":{connector},"name":'
        head += f'{as_json(self.prefix)},"ts_ms":'
        micros = us.cast(pa.string())
        return [
            pa.scalar(head),
            ms_texts(us),
            pa.scalar(',"snapshot":'),
            snapshot,
            pa.scalar(f',"db":{as_json(self._database)},"sequence":"[\\"'),
            seq,
            pa.scalar('\\",\\"'),
            seq,
            pa.scalar('\\"]","ts_us":'),
            micros,
            pa.scalar(',"ts_ns":'),
            micros,
            pa.scalar(f"000{self._schema},"),
            *self._position(tx),
            notes,
            pa.scalar("}"),
        ]

    @property
    def _database(self) -> str:
        """The database: where a log covers all of them, it is what we call the schema."""
        return self.manifest.identity.database or self.table.schema

    @property
    def _schema(self) -> str:
        table = f',"table":{as_json(self.table.name)}'
        in_schema = self.manifest.identity.kind == "postgres"
        return f',"schema":{as_json(self.table.schema)}{table}' if in_schema else table

    def _position(self, tx: pa.StringArray) -> list[Piece]:
        """Return where in the log it is: the end of the segment, which is the same for all of
        it."""
        position = self.manifest.position
        if isinstance(position, PostgresPosition):
            lsn = f',"lsn":{position.end_lsn},"xmin":null,"origin":null,"origin_lsn":null'
            return [pa.scalar('"txId":'), tx, pa.scalar(lsn)]
        assert isinstance(position, MysqlPosition)
        place = f'"server_id":0,"gtid":null,"file":{as_json(position.file)}'
        place += f',"pos":{position.offset},"row":0,"thread":null,"query":null'
        return [pa.scalar(place)]


def ms_texts(us: pa.Int64Array) -> pa.StringArray:
    """Return microseconds as texts of milliseconds, cut towards the past."""
    cut = np.floor_divide(us.to_numpy(zero_copy_only=False), 1_000)
    return pa.array(cut).cast(pa.string())


def source_schema(kind: str) -> Schema:
    """Return the Connect schema of the blocks of a kind of source."""
    snapshot = named("string", "io.debezium.data.Enum", allowed=_SNAPSHOT)
    first: list[Mapping[str, Any]] = [
        _member("version", "string", optional=False),
        _member("connector", "string", optional=False),
        _member("name", "string", optional=False),
        _member("ts_ms", "int64", optional=False),
        {**snapshot, "optional": True, "default": "false", "field": "snapshot"},
        _member("db", "string", optional=False),
        _member("sequence", "string"),
        _member("ts_us", "int64"),
        _member("ts_ns", "int64"),
    ]
    own, name = (_POSTGRES, "postgresql") if kind == "postgres" else (_BINLOG, kind)
    notes = [{**_TEXTS, "field": "overflow"}, {**_TEXTS, "field": "before_overflow"}, _UNCHANGED]
    return {
        "type": "struct",
        "fields": [*first, *own, *notes],
        "optional": False,
        "name": f"io.debezium.connector.{name}.Source",
        "version": 1,
        "field": "source",
    }


def _member(name: str, kind: str, *, optional: bool = True) -> Mapping[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


_TEXTS = {
    "type": "map",
    "keys": {"type": "string", "optional": False},
    "values": {"type": "string", "optional": False},
    "optional": True,
}
_UNCHANGED = {
    "type": "array",
    "items": {"type": "string", "optional": False},
    "optional": True,
    "field": "unchanged",
}
_POSTGRES: Sequence[Mapping[str, Any]] = (
    _member("schema", "string", optional=False),
    _member("table", "string", optional=False),
    _member("txId", "int64"),
    _member("lsn", "int64"),
    _member("xmin", "int64"),
    _member("origin", "string"),
    _member("origin_lsn", "int64"),
)
_BINLOG: Sequence[Mapping[str, Any]] = (
    _member("table", "string"),
    _member("server_id", "int64", optional=False),
    _member("gtid", "string"),
    _member("file", "string", optional=False),
    _member("pos", "int64", optional=False),
    _member("row", "int32", optional=False),
    _member("thread", "int64"),
    _member("query", "string"),
)
