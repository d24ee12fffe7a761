"""Encodes a window of rows, of several tables, as events in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.manifest import Manifest
from tideline.contract.part import BEFORE, DELETED, OP, OVERFLOW, SEQ, TS, TX, UNCHANGED, UPDATED
from tideline.contract.schema import TableSchema
from tideline_publish.events import ChangeEvent
from tideline_publish.formats.base import EventFormat
from tideline_publish.outbox.encoding import Outbox
from tideline_publish.part_rows import TableRows
from tideline_publish.selection import Selection


class Encoder:
    """Encodes rows in one form, but for those of an ``outbox``. ``read_schema`` returns the schema
    of a fingerprint."""

    def __init__(
        self,
        event_format: EventFormat,
        selection: Selection,
        read_schema: Callable[[str], TableSchema],
        outbox: Outbox,
    ) -> None:
        self._outbox = outbox
        self._format = event_format
        self._selection = selection
        self._read_schema = read_schema
        self._schemas: dict[str, TableSchema] = {}

    def events(self, manifest: Manifest, window: Sequence[TableRows]) -> list[ChangeEvent]:
        """Return the events of the rows of ``window``, which are in ``manifest``, in order."""
        found: list[ChangeEvent] = []
        for rows in window:
            if rows.logged:
                found += self._outbox.messages(rows.part, rows.batch)
                continue
            schema = self._schema(rows.part.schema)
            if self._outbox.has(schema.table):
                found += self._outbox.rows(schema, rows.part, rows.batch)
                continue
            chosen = self._chosen(rows.batch)
            for part, some in self._split(schema, chosen):
                found += self._encoded(manifest, schema, part, some, rows.part.key)
        if len(window) > 1 or any(one.part for one in found):
            found.sort(key=_order)
        return found

    def _schema(self, fingerprint: str) -> TableSchema:
        if fingerprint not in self._schemas:
            self._schemas[fingerprint] = self._read_schema(fingerprint)
        return self._schemas[fingerprint]

    def _chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose operations are published."""
        operations = pa.array(sorted(self._selection.operations))
        wanted = pc.is_in(rows.column(OP), value_set=operations)
        return rows if pc.all(wanted, min_count=0).as_py() else rows.filter(wanted)

    def _split(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """Return ``rows``, and apart from them the updates that changed the key: the deletes of the
        old keys, and behind these and their tombstones the updates."""
        olds = [BEFORE + name for name in schema.key if BEFORE + name in rows.schema.names]
        changed = np.zeros(rows.num_rows, dtype=bool)
        for old in olds:
            changed |= rows.column(old).is_valid().to_numpy(zero_copy_only=False)
        changed &= pc.equal(rows.column(OP), UPDATED).to_numpy(zero_copy_only=False)
        if not changed.any():
            return [(0, rows)]
        mask = pa.array(changed)
        moved = rows.filter(mask)
        return [
            (0, rows.filter(pc.invert(mask))),
            (0, _deletes(schema, moved)),
            (2 if self._format.tombstones else 1, moved),
        ]

    def _encoded(
        self,
        manifest: Manifest,
        schema: TableSchema,
        part: int,
        rows: pa.RecordBatch,
        object_key: str,
    ) -> list[ChangeEvent]:
        if not rows.num_rows:
            return []
        encoded = self._format.rows(manifest, schema, self._selection.columns(schema), rows)
        table = schema.table
        found = [
            ChangeEvent(seq, part, table, op, tx, ts_us, key, value, object_key)
            for seq, op, tx, ts_us, key, value in zip(
                rows.column(SEQ).to_pylist(),
                rows.column(OP).to_pylist(),
                rows.column(TX).to_pylist(),
                rows.column(TS).cast(pa.int64()).to_pylist(),
                encoded.keys,
                encoded.values,
                strict=True,
            )
        ]
        if self._format.tombstones and schema.key:
            found += [_tombstone(event) for event in found if event.op == DELETED]
        return found


def _tombstone(event: ChangeEvent) -> ChangeEvent:
    return msgspec.structs.replace(event, part=event.part + 1, value=None)


def _order(event: ChangeEvent) -> tuple[int, int]:
    return event.seq, event.part


def _deletes(schema: TableSchema, moved: pa.RecordBatch) -> pa.RecordBatch:
    """Return the deletes of the rows that were at the old keys."""
    changes: Mapping[str, pa.Array] = {
        OP: pa.array([DELETED] * moved.num_rows, moved.schema.field(OP).type),
        # They are about the row at the new key.
        **{
            name: pa.nulls(moved.num_rows, moved.schema.field(name).type)
            for name in (UNCHANGED, OVERFLOW)
            if name in moved.schema.names
        },
        **{
            name: pc.coalesce(moved.column(BEFORE + name), moved.column(name))
            for name in schema.key
            if BEFORE + name in moved.schema.names
        },
    }
    columns = [changes.get(name, moved.column(name)) for name in moved.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=moved.schema)
