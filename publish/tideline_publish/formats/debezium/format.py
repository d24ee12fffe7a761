"""Debezium's envelope: ``before``, ``after``, ``source``, ``transaction``, ``op`` and times.

Keys are objects of their own. What the log left out has Debezium's placeholder, and a value that
its type has no form of is null; both are named in ``source``, which Debezium has no such members
of: ``unchanged``, ``overflow`` and ``before_overflow``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.manifest import Manifest, Truncate
from tideline.contract.part import (
    BEFORE,
    CREATED,
    DELETED,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    TS,
    UNCHANGED,
    UPDATED,
)
from tideline.contract.schema import TableSchema, parse_table
from tideline.settings.publish import DebeziumSettings
from tideline_publish.events import TRUNCATED
from tideline_publish.formats.base import EncodedRows
from tideline_publish.formats.debezium.cells import (
    NULL,
    Notes,
    field_texts,
    objects,
    with_overflow,
    with_placeholders,
)
from tideline_publish.formats.debezium.envelope import event_schema, key_schema
from tideline_publish.formats.debezium.fields import FieldType, as_json
from tideline_publish.formats.debezium.source import Piece, Source, ms_texts
from tideline_publish.formats.debezium.types import field_of

_DELETED, _IMAGED, _UPDATED = 1, 2, 4


class DebeziumFormat:
    """See `EventFormat`."""

    def __init__(self, pipeline: str, settings: DebeziumSettings) -> None:
        self._prefix = settings.prefix or pipeline
        self._settings = settings
        self.tombstones = settings.tombstones

    def rows(
        self,
        manifest: Manifest,
        schema: TableSchema,
        columns: Sequence[str],
        rows: pa.RecordBatch,
    ) -> EncodedRows:
        """See `EventFormat`."""
        shape = self._shape(manifest, schema, columns)
        kinds = _kinds(schema, rows)
        values = np.empty(rows.num_rows, dtype=object)
        for kind in np.unique(kinds):
            at = np.flatnonzero(kinds == kind)
            some = rows if len(at) == rows.num_rows else rows.take(pa.array(at))
            values[at] = self._events(shape, some, int(kind)).cast(pa.binary()).to_pylist()
        keys: Sequence[bytes | None] = [None] * rows.num_rows
        if schema.key:
            keys = self._keys(shape, rows).cast(pa.binary()).to_pylist()
        return EncodedRows(keys, values.tolist())

    def truncate(self, manifest: Manifest, schema: TableSchema, truncate: Truncate) -> bytes:
        """See `EventFormat`."""
        us = manifest.through_us or 0
        shape = self._shape(manifest, schema, schema.column_names)
        source = shape.source.text(truncate.seq, us)
        processed = _processed(manifest, pa.array([us]))
        text: str = pc.binary_join_element_wise(
            pa.array([f'{{"before":null,"after":null,"source":{source}']),
            pa.scalar(f',"transaction":null,"op":"{TRUNCATED}"'),
            *processed,
            pa.scalar("}"),
            "",
        )[0].as_py()
        return shape.opening.encode() + text.encode() + shape.closing.encode()

    def _shape(self, manifest: Manifest, schema: TableSchema, columns: Sequence[str]) -> _Shape:
        return _Shape(manifest, schema, tuple(columns), self._prefix, self._settings)

    def _keys(self, shape: _Shape, rows: pa.RecordBatch) -> pa.StringArray:
        texts = shape.texts(rows, shape.schema.key, "", {})
        if not self._settings.schemas:
            return objects(texts)
        head = f'{{"schema":{as_json(shape.key_schema)},"payload":'
        return pc.binary_join_element_wise(pa.scalar(head), objects(texts), pa.scalar("}"), "")

    def _events(self, shape: _Shape, rows: pa.RecordBatch, kind: int) -> pa.StringArray:
        notes = Notes()
        after = pa.scalar(NULL) if kind & _DELETED else shape.after(rows, notes)
        before = shape.before(rows, kind, notes)
        operation = rows.column(OP)
        if not kind & _UPDATED:  # Behind the delete of the old key, its update creates a row.
            created = pc.if_else(pc.equal(operation, UPDATED), CREATED, operation)
            operation = created
        pieces: list[Piece] = [
            pa.scalar(f'{shape.opening}{{"before":'),
            before,
            pa.scalar(',"after":'),
            after,
            pa.scalar(',"source":'),
            *shape.source.texts(rows, notes.texts(rows.num_rows)),
            pa.scalar(',"transaction":null,"op":"'),
            operation,
            pa.scalar('"'),
            *_processed(shape.manifest, rows.column(TS).cast(pa.int64())),
            pa.scalar(f"}}{shape.closing}"),
        ]
        return pc.binary_join_element_wise(*pieces, "")


@dataclass(frozen=True)
class _Shape:
    """What the events of a table in a manifest have in common."""

    manifest: Manifest
    schema: TableSchema
    columns: tuple[str, ...]
    prefix: str
    settings: DebeziumSettings

    @cached_property
    def fields(self) -> Mapping[str, FieldType]:
        """The fields of events, in their order."""
        kind = self.manifest.identity.kind
        return {name: field_of(kind, self.schema.column(name)) for name in self.columns}

    @cached_property
    def source(self) -> Source:
        """The block of where they come from."""
        return Source(self.manifest, parse_table(self.schema.table), self.prefix)

    @cached_property
    def opening(self) -> str:
        """What is before an event: its schema, where the settings want it."""
        if not self.settings.schemas:
            return ""
        kind = self.manifest.identity.kind
        schema = event_schema(self._name, kind, self.schema, self.fields)
        return f'{{"schema":{as_json(schema)},"payload":'

    @property
    def closing(self) -> str:
        """What is behind an event."""
        return "}" if self.settings.schemas else ""

    @property
    def key_schema(self) -> Mapping[str, object]:
        """The schema of keys."""
        return key_schema(self._name, self.schema, self.fields)

    @property
    def _name(self) -> str:
        table = parse_table(self.schema.table)
        return f"{self.prefix}.{table.schema}.{table.name}"

    def texts(
        self,
        rows: pa.RecordBatch,
        names: Sequence[str],
        prefix: str,
        overflow: dict[int, dict[str, str]],
    ) -> dict[str, pa.StringArray]:
        """Return columns as texts of JSON; ``prefix`` is that of their names in ``rows``."""
        return {
            name: field_texts(name, rows.column(prefix + name), self.fields[name], overflow)
            for name in names
        }

    def after(self, rows: pa.RecordBatch, notes: Notes) -> pa.StringArray:
        """Return the rows as they are."""
        found = self.texts(rows, self.columns, "", notes.overflow)
        if OVERFLOW in rows.schema.names:
            with_overflow(found, self.fields, rows.column(OVERFLOW), notes.overflow)
        if UNCHANGED in rows.schema.names:
            with_placeholders(found, self._placeholder, rows.column(UNCHANGED), notes)
        return objects(found)

    def before(self, rows: pa.RecordBatch, kind: int, notes: Notes) -> Piece:
        """Return the rows before, or null."""
        if kind & _IMAGED and kind & (_UPDATED | _DELETED):
            return objects(self._image(rows, notes))
        return objects(self._keys_only(rows)) if kind & _DELETED else pa.scalar(NULL)

    def _image(self, rows: pa.RecordBatch, notes: Notes) -> dict[str, pa.StringArray]:
        others = [name for name in self.columns if name not in self.schema.key]
        found = self.texts(rows, others, BEFORE, notes.before_overflow)
        if IMAGE_OVERFLOW in rows.schema.names:
            marks = rows.column(IMAGE_OVERFLOW)
            with_overflow(found, self.fields, marks, notes.before_overflow)
        found |= self._old_key(rows)
        return {name: found[name] for name in self.columns}

    def _old_key(self, rows: pa.RecordBatch) -> dict[str, pa.StringArray]:
        """Return the key before: it is the row's own, where the update did not change it."""
        found = {}
        for name in self.schema.key:
            values = rows.column(name)
            if BEFORE + name in rows.schema.names:
                values = pc.coalesce(rows.column(BEFORE + name), values)
            found[name] = field_texts(name, values, self.fields[name], {})
        return found

    def _keys_only(self, rows: pa.RecordBatch) -> dict[str, Piece]:
        """Return the key before; what else the row had is not known."""
        key = self._old_key(rows)
        return {name: key.get(name, pa.scalar(self._unknown(name))) for name in self.columns}

    def _unknown(self, name: str) -> str:
        return NULL if self.schema.column(name).nullable else self.fields[name].zero

    def _placeholder(self, name: str) -> str:
        """Return what stands for a value that the log left out: null where the type has no room for
        a placeholder, also of a column that is never NULL, so that no made-up value is taken for
        the row's."""
        return self.fields[name].unavailable(self.settings.unavailable) or NULL


def _kinds(schema: TableSchema, rows: pa.RecordBatch) -> np.ndarray:
    """Return for each row what it is, as a sum of flags. An update of the key is no update here:
    it comes behind the delete of the old one."""
    names = rows.schema.names
    operations = rows.column(OP)
    kinds = _DELETED * _flags(pc.equal(operations, DELETED))
    if IMAGE in names:
        kinds |= _IMAGED * _flags(pc.fill_null(rows.column(IMAGE), False))
    updated = _flags(pc.equal(operations, UPDATED))
    for name in schema.key:
        if BEFORE + name in names:
            updated &= ~_flags(rows.column(BEFORE + name).is_valid()) & 1
    kinds |= _UPDATED * updated
    return kinds


def _flags(marks: pa.BooleanArray) -> np.ndarray:
    flags: np.ndarray = marks.to_numpy(zero_copy_only=False).astype(np.int8)
    return flags


def _processed(manifest: Manifest, us: pa.Int64Array) -> list[Piece]:
    """Return when events were processed: when their manifest was written, so that an event that
    comes again is the same; where that is not known, ``us``, when they were committed."""
    if manifest.written_at_us is not None:
        us = pa.array([manifest.written_at_us])
    micros = us.cast(pa.string())
    ms = ms_texts(us)
    if manifest.written_at_us is not None:
        ms, micros = ms[0], micros[0]
    return [
        pa.scalar(',"ts_ms":'),
        ms,
        pa.scalar(',"ts_us":'),
        micros,
        pa.scalar(',"ts_ns":'),
        micros,
        pa.scalar("000"),
    ]
