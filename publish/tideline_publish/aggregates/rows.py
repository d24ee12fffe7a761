"""Changes of the rows of parts, one by one, with values as texts of JSON."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa

from tideline.contract.part import BEFORE, DELETED, OP, OVERFLOW, SEQ, TS, TX, UNCHANGED, UPDATED
from tideline.contract.schema import TableSchema
from tideline_publish.formats.json_values import json_values
from tideline_publish.part_rows import TableRows

Values = dict[str, msgspec.Raw]
"""A row's columns, each as JSON."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """A change of a row. ``key`` is the text of the key's values as a JSON array, ``old_key`` that
    of the row before an update that changed it, else None. ``values`` lacks columns that the log
    left out; a deleted row has its key only. A value that its type cannot hold is its text."""

    seq: int
    table: str
    op: str
    tx: int
    ts_us: int
    key: str
    old_key: str | None
    values: Values


def changes_in_order(
    window: Sequence[TableRows], read_schema: Callable[[str], TableSchema]
) -> Iterator[RowChange]:
    """Yield the changes of the rows of ``window`` in the order of their sequences."""
    each = [_changes(read_schema(rows.part.schema), rows.batch) for rows in window]
    return heapq.merge(*each, key=attrgetter("seq"))


def key_text(texts: Sequence[bytes | str]) -> str:
    """Return the key with values of these ``texts``."""
    return f"[{','.join(one if isinstance(one, str) else one.decode() for one in texts)}]"


def _changes(schema: TableSchema, rows: pa.RecordBatch) -> Iterator[RowChange]:
    texts = {
        one.name: json_values(rows.column(one.name), one.logical).to_pylist()
        for one in schema.columns
    }
    olds = _old_keys(schema, rows, texts)
    marks = [_listed(rows, name) for name in (UNCHANGED, OVERFLOW)]
    for at, (seq, op, tx, ts_us) in enumerate(
        zip(
            rows.column(SEQ).to_pylist(),
            rows.column(OP).to_pylist(),
            rows.column(TX).to_pylist(),
            rows.column(TS).cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ):
        key = key_text([texts[name][at] for name in schema.key])
        old = key_text([column[at] for column in olds]) if olds and op == UPDATED else key
        left_out = frozenset(marks[0][at] or ())
        names = schema.key if op == DELETED else schema.column_names
        values = {name: msgspec.Raw(texts[name][at]) for name in names if name not in left_out}
        for name, text in () if op == DELETED else marks[1][at] or ():
            values[name] = msgspec.Raw(msgspec.json.encode(text))
        yield RowChange(seq, schema.table, op, tx, ts_us, key, None if old == key else old, values)


def _old_keys(
    schema: TableSchema, rows: pa.RecordBatch, texts: Mapping[str, list[str]]
) -> list[list[str]]:
    """Return the key's columns before the rows' changes; nothing where no key changed."""
    if not any(BEFORE + name in rows.schema.names for name in schema.key):
        return []
    found = []
    for name in schema.key:
        column = texts[name]
        if BEFORE + name in rows.schema.names:
            before = rows.column(BEFORE + name)
            known = before.is_valid().to_pylist()
            old = json_values(before, schema.column(name).logical).to_pylist()
            column = [
                one if there else now for one, there, now in zip(old, known, column, strict=True)
            ]
        found.append(column)
    return found


def _listed(rows: pa.RecordBatch, name: str) -> list[Any]:
    if name in rows.schema.names:
        values: list[Any] = rows.column(name).to_pylist()
        return values
    return [None] * rows.num_rows
