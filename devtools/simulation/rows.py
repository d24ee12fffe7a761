"""Rows of the simulated source in the shape of parts, and parts read back as events."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from devtools.simulation.log import LoggedChange
from devtools.simulation.tables import Key, Row, digest_of
from tideline.contract.part import PartCounts
from tideline.contract.schema import TableSchema
from tideline_capture.arrow_types import arrow_type, part_schema
from tideline_capture.core.events import Rows


def make_rows(changes: Sequence[tuple[int, int, int, LoggedChange]]) -> Rows:
    """Build rows from ``changes``, of one table and schema: (seq, xid, µs, change)."""
    schema = changes[0][3].form.schema
    key = schema.key[0]
    moved = any(one.before is not None for *_, one in changes)
    lacking = any(one.unchanged for *_, one in changes)
    shown = [_values(one, key) for *_, one in changes]
    columns: list[Any] = [
        [seq for seq, *_ in changes],
        [one.op for *_, one in changes],
        [xid for _, xid, *_ in changes],
        [moment for _, _, moment, _ in changes],
        *([row.get(name) for row in shown] for name in schema.column_names),
    ]
    if moved:
        columns.append([one.before[0] if one.before else None for *_, one in changes])
    if lacking:
        columns.append([list(one.unchanged) or None for *_, one in changes])
    fields = part_schema(schema, (key,) if moved else (), unchanged=lacking, overflow=False)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return Rows(
        schema,
        pa.RecordBatch.from_arrays(arrays, schema=fields),
        PartCounts(
            unchanged_rows=sum(bool(one.unchanged) for *_, one in changes),
            before_rows=sum(one.before is not None for *_, one in changes),
        ),
    )


def make_chunk(schema: TableSchema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Build a chunk's batch of ``rows``: the table's columns only."""
    fields = chunk_fields(schema)
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(arrays, schema=fields)


@functools.lru_cache(maxsize=256)
def chunk_fields(schema: TableSchema) -> pa.Schema:
    return pa.schema(
        [pa.field(column.name, arrow_type(column.logical)) for column in schema.columns]
    )


def make_keys(schema: TableSchema, keys: Sequence[Key]) -> pa.RecordBatch:
    """Build a batch of keys alone, as a chunk has those that the source lacks."""
    name = schema.key[0]
    kind = arrow_type(schema.column(name).logical)
    return pa.RecordBatch.from_arrays([pa.array([key[0] for key in keys], kind)], names=[name])


def _values(change: LoggedChange, key: str) -> Row:
    if change.row is None:
        return {key: change.key[0]}
    if not change.unchanged:
        return change.row
    return {name: value for name, value in change.row.items() if name not in change.unchanged}


class PartRow:
    """A row of a part. ``values`` are of the columns that it carries, NULLs included."""

    __slots__ = ("before", "key", "moment", "op", "seq", "unchanged", "values", "xid")

    def __init__(self, schema: TableSchema, row: Mapping[str, Any]) -> None:
        name = schema.key[0]
        before = row.get(f"_tl_before_{name}")
        self.seq: int = row["_tl_seq"]
        self.op: str = row["_tl_op"]
        self.xid: int = row["_tl_tx"]
        self.moment: int = row["_tl_ts"]
        self.key: Key = (row[name],)
        self.before: Key | None = None if before is None else (before,)
        self.unchanged: tuple[str, ...] = tuple(row.get("_tl_unchanged") or ())
        self.values: Row = {
            column: row.get(column)
            for column in schema.column_names
            if column not in self.unchanged
        }

    @property
    def ver(self) -> int | None:
        return self.values.get("ver")

    @property
    def digest(self) -> str | None:
        return None if self.unchanged or self.op == "d" else digest_of(self.values)


def read_part(schema: TableSchema, data: bytes) -> list[PartRow]:
    """Return the rows of a part; raise pyarrow's errors for bytes that are none."""
    table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
    at = table.schema.get_field_index("_tl_ts")
    table = table.set_column(at, "_tl_ts", table.column(at).cast(pa.int64()))
    names = table.schema.names
    columns = [column.to_pylist() for column in table.columns]
    return [
        PartRow(schema, dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
    ]
