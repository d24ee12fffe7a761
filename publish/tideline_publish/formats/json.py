"""Tideline's own JSON form of events.

``{"op": "u", "table": "public.orders", "seq": 7, "tx": 912, "at": "2026-11-28T16:23:44.000000Z",
"key": {…}, "row": {…}}``, and where there is something to say: ``before``, the row before an update
or delete, of tables with ``before_image = "full"``; ``unchanged``, the columns that the log left
out because they did not change; ``overflow``, texts of values that their types cannot hold, by
column. Columns of the last two are not in ``row``. A deleted row has no ``row``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
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
from tideline.contract.schema import TableSchema
from tideline.contract.types import TIMESTAMP
from tideline_publish.events import TRUNCATED
from tideline_publish.formats.base import EncodedRows
from tideline_publish.formats.json_values import json_values

_DELETED, _IMAGED, _PARTIAL = 1, 2, 4
_MARKS = (UNCHANGED, OVERFLOW, IMAGE_OVERFLOW)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of events as texts of JSON: of the row and the row before, by name."""

    row: Mapping[str, pa.StringArray]
    before: Mapping[str, pa.StringArray]


class JsonFormat:
    """See `EventFormat`."""

    tombstones = False

    def rows(
        self,
        manifest: Manifest,
        schema: TableSchema,
        columns: Sequence[str],
        rows: pa.RecordBatch,
    ) -> EncodedRows:
        """See `EventFormat`."""
        heads = _heads(schema, rows)
        keys = _keys(schema, rows)
        kinds = _kinds(rows)
        found = np.empty(rows.num_rows, dtype=object)
        for kind in np.unique(kinds):
            at = np.flatnonzero(kinds == kind)
            some = rows if len(at) == rows.num_rows else rows.take(pa.array(at))
            bodies = _partial_bodies if kind & _PARTIAL else _bodies
            texts = bodies(schema, columns, some, int(kind))
            tops = heads if some is rows else heads.take(pa.array(at))
            if keys is not None:
                own = keys if some is rows else keys.take(pa.array(at))
                tops = pc.binary_join_element_wise(tops, own, ',"key":')
            whole = pc.binary_join_element_wise(tops, texts, pa.scalar("}"), "")
            found[at] = whole.cast(pa.binary()).to_pylist()
        listed: list[bytes | None] = [None] * rows.num_rows
        return EncodedRows(
            listed if keys is None else keys.cast(pa.binary()).to_pylist(), found.tolist()
        )

    def truncate(self, manifest: Manifest, schema: TableSchema, truncate: Truncate) -> bytes:
        """See `EventFormat`. Its time is the source's at the end of its manifest."""
        ts_us = manifest.through_us or 0
        at = json_values(pa.array([ts_us], pa.timestamp("us", "UTC")), TIMESTAMP)[0].as_py()
        table = msgspec.json.encode(truncate.table).decode()
        text = f'{{"op":"{TRUNCATED}","table":{table},"seq":{truncate.seq},"tx":0,"at":{at}}}'
        return text.encode()


def _kinds(rows: pa.RecordBatch) -> np.ndarray:
    """Return for each row which texts it has, as a sum of flags."""
    kinds = _DELETED * _flags(pc.equal(rows.column(OP), DELETED))
    names = rows.schema.names
    if IMAGE in names:
        kinds |= _IMAGED * _flags(pc.fill_null(rows.column(IMAGE), False))
    for mark in _MARKS:
        if mark in names and rows.column(mark).null_count < rows.num_rows:
            kinds |= _PARTIAL * _flags(pc.is_valid(rows.column(mark)))
    return kinds


def _flags(marks: pa.BooleanArray) -> np.ndarray:
    flags: np.ndarray = marks.to_numpy(zero_copy_only=False).astype(np.int8)
    return flags


def _heads(schema: TableSchema, rows: pa.RecordBatch) -> pa.StringArray:
    """Return the events up to what is of the row itself, without what ends them."""
    table = msgspec.json.encode(schema.table).decode()
    return pc.binary_join_element_wise(
        pa.scalar('{"op":"'),
        rows.column(OP),
        pa.scalar(f'","table":{table},"seq":'),
        rows.column(SEQ).cast(pa.string()),
        pa.scalar(',"tx":'),
        rows.column(TX).cast(pa.string()),
        pa.scalar(',"at":'),
        json_values(rows.column(TS), TIMESTAMP),
        "",
    )


def _keys(schema: TableSchema, rows: pa.RecordBatch) -> pa.StringArray | None:
    """Return the keys as JSON objects; None for a table without one."""
    return _objects(_texts(schema, rows, schema.key)) if schema.key else None


def _texts(
    schema: TableSchema, rows: pa.RecordBatch, names: Sequence[str], prefix: str = ""
) -> dict[str, pa.StringArray]:
    return {
        name: json_values(rows.column(prefix + name), schema.column(name).logical) for name in names
    }


def _objects(texts: Mapping[str, pa.StringArray]) -> pa.StringArray:
    """Return JSON objects with all of ``texts``, which have no NULL."""
    pieces: list[pa.StringScalar | pa.StringArray] = []
    for at, (name, column) in enumerate(texts.items()):
        label = msgspec.json.encode(name).decode()
        pieces += [pa.scalar(f"{',' if at else '{'}{label}:"), column]
    return pc.binary_join_element_wise(*pieces, pa.scalar("}"), "")


def _columns(
    schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch, kind: int
) -> _Columns:
    row = {} if kind & _DELETED else _texts(schema, rows, columns)
    imaged = kind & _IMAGED or (kind & _PARTIAL and IMAGE in rows.schema.names)
    return _Columns(row, _before(schema, columns, rows) if imaged else {})


def _before(
    schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch
) -> dict[str, pa.StringArray]:
    """Return the columns of the row before: those of the key are the row's own, where the update
    did not change them."""
    found = _texts(schema, rows, [one for one in columns if one not in schema.key], BEFORE)
    for name in schema.key:
        old = BEFORE + name
        values = rows.column(name)
        if old in rows.schema.names:
            values = pc.coalesce(rows.column(old), values)
        found[name] = json_values(values, schema.column(name).logical)
    return {name: found[name] for name in columns}


def _bodies(
    schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch, kind: int
) -> pa.StringArray:
    """Return what is of the rows themselves, for rows whose columns are all known."""
    found = _columns(schema, columns, rows, kind)
    pieces: list[pa.StringScalar | pa.StringArray] = [pa.array([""] * rows.num_rows)]
    for name, texts in (("row", found.row), ("before", found.before)):
        if texts:
            pieces += [pa.scalar(f',"{name}":'), _objects(texts)]
    return pc.binary_join_element_wise(*pieces, "")


def _partial_bodies(
    schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch, kind: int
) -> pa.StringArray:
    """Return the same for rows of which some columns are not known, or did not fit: row by row."""
    found = _columns(schema, columns, rows, kind)
    row = {name: texts.to_pylist() for name, texts in found.row.items()}
    before = {name: texts.to_pylist() for name, texts in found.before.items()}
    marks = [_listed(rows, mark) for mark in _MARKS]
    bodies = []
    for at, (unchanged, overflow, old_overflow) in enumerate(zip(*marks, strict=True)):
        fitting = {**dict.fromkeys(unchanged or ()), **dict(overflow or ())}
        body = [] if kind & _DELETED else [("row", _object(row, at, fitting))]
        if kind & _IMAGED:
            body.append(("before", _object(before, at, dict(old_overflow or ()))))
        for name, marked in (
            ("unchanged", unchanged),
            ("overflow", dict(overflow or ())),
            ("before_overflow", dict(old_overflow or ())),
        ):
            if marked:
                body.append((name, msgspec.json.encode(marked).decode()))
        bodies.append("".join(f',"{name}":{text}' for name, text in body))
    return pa.array(bodies, pa.string())


def _listed(rows: pa.RecordBatch, name: str) -> list[Any]:
    found: list[Any] = [None] * rows.num_rows
    if name in rows.schema.names:
        found = rows.column(name).to_pylist()
    return found


def _object(texts: Mapping[str, Sequence[str]], at: int, left_out: Mapping[str, object]) -> str:
    pairs = (
        f"{msgspec.json.encode(name).decode()}:{column[at]}"
        for name, column in texts.items()
        if name not in left_out
    )
    return "{" + ",".join(pairs) + "}"
