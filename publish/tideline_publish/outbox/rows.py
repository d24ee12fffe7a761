"""Encodes the rows of an outbox table as events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.errors import Misconfigured
from tideline.contract.part import (
    CREATED,
    DELETED,
    DUMPED,
    OP,
    OVERFLOW,
    SEQ,
    TS,
    TX,
    UNCHANGED,
    UPDATED,
)
from tideline.contract.schema import TableSchema
from tideline.contract.types import TIMESTAMP, Kind, LogicalType
from tideline.settings.outbox import OutboxSettings
from tideline_publish.events import ChangeEvent
from tideline_publish.formats.json_values import json_values
from tideline_publish.outbox.event import (
    EventMaker,
    Fields,
    InvalidEvent,
    OutboxChange,
    check_header,
)

_NAMES = frozenset({Kind.STRING, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
_KINDS = {
    "id": _NAMES,
    "aggregate_type": _NAMES,
    "aggregate_id": _NAMES,
    "type": _NAMES,
    "payload": frozenset({Kind.STRING, Kind.BINARY}),
    "time": frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ}),
}
_WANTED = {
    "payload": "text, JSON or bytes",
    "time": "a timestamp",
}
_IGNORING = 'outbox.others = "ignore" leaves such changes out'


class OutboxRows:
    """Encodes rows by the settings of an outbox."""

    def __init__(self, settings: OutboxSettings, maker: EventMaker) -> None:
        self._settings = settings
        self._maker = maker
        self._checked: set[str] = set()

    def events(
        self, schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch, object_key: str
    ) -> list[ChangeEvent]:
        """Return the events of ``rows``, in their order. Of the ``columns`` those that are not
        known are headers.

        Raises Misconfigured for a table that lacks a column, or has one of another type; for
        changes that an outbox should not have; and for rows that are no events.
        """
        if schema.fingerprint not in self._checked:
            self._check(schema, columns)
            self._checked.add(schema.fingerprint)
        chosen = self._inserts(schema, rows)
        if not chosen.num_rows:
            return []
        made = (
            self._maker.event(source, fields, at)
            for source, fields, at in self._fields(schema, columns, chosen, object_key)
        )
        return [event for event in made if event is not None]

    def truncated(self, table: str, seq: int) -> None:
        """Judge a truncate; raises Misconfigured."""
        if self._settings.others == "error":
            raise Misconfigured(
                f"change {seq} truncates the outbox {table}: an outbox has inserts and deletes",
                hint=_IGNORING,
            )

    def _inserts(self, schema: TableSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that are events."""
        operations = np.array(rows.column(OP).to_pylist(), dtype=object)
        wanted = operations == CREATED
        if wanted.all():
            return rows
        updated = np.flatnonzero(operations == UPDATED)
        if len(updated) and self._settings.others == "error":
            seq = rows.column(SEQ)[int(updated[0])].as_py()
            raise Misconfigured(
                f"change {seq} updates a row of the outbox {schema.table}: an outbox has inserts"
                " and deletes",
                hint=_IGNORING,
            )
        dumped = operations == DUMPED
        if UNCHANGED in rows.schema.names:
            # What an update had left out, read again: judged as that update.
            dumped &= ~rows.column(UNCHANGED).is_valid().to_numpy(zero_copy_only=False)
        if dumped.any():
            wanted |= self._dumped(schema, rows, dumped)
        assert set(operations) <= {CREATED, UPDATED, DELETED, DUMPED}
        return rows.filter(pa.array(wanted))

    def _dumped(self, schema: TableSchema, rows: pa.RecordBatch, dumped: np.ndarray) -> np.ndarray:
        """Return which of the ``dumped`` rows are events."""
        if self._settings.dumped == "error":
            seq = rows.column(SEQ)[int(np.flatnonzero(dumped)[0])].as_py()
            raise Misconfigured(
                f"change {seq} is a row of the outbox {schema.table} that a dump read: it may have"
                " been published before, or not",
                hint='outbox.dumped = "publish" publishes such rows, perhaps again;'
                ' outbox.dumped = "ignore" leaves them out (docs/OUTBOX.md#dumps)',
            )
        return dumped if self._settings.dumped == "publish" else np.zeros_like(dumped)

    def _fields(
        self, schema: TableSchema, columns: Sequence[str], rows: pa.RecordBatch, object_key: str
    ) -> Iterator[tuple[OutboxChange, Fields, bytes]]:
        """Yield each row, its values as bytes, and its transaction's time."""
        names = [name for name in schema.column_names if self._is_used(name, columns)]
        values = [_as_bytes(rows.column(name), schema.column(name).logical) for name in names]
        times = _as_bytes(rows.column(TS), TIMESTAMP)
        overflow = rows.column(OVERFLOW).to_pylist() if OVERFLOW in rows.schema.names else None
        heads = (rows.column(name).to_pylist() for name in (SEQ, OP, TX))
        moments = rows.column(TS).cast(pa.int64()).to_pylist()
        for at, (seq, op, tx, ts_us, *row) in enumerate(zip(*heads, moments, *values, strict=True)):
            fields = dict(zip(names, row, strict=True))
            if overflow is not None and overflow[at]:
                texts = {name: text.encode() for name, text in overflow[at] if name in fields}
                fields |= texts
            raw = partial(_document, fields)
            source = OutboxChange(seq, schema.table, op, tx, ts_us, object_key, raw)
            yield source, fields, times[at] or b""

    def _is_used(self, name: str, columns: Sequence[str]) -> bool:
        return name in self._maker.known or name in columns

    def _check(self, schema: TableSchema, columns: Sequence[str]) -> None:
        """Raise Misconfigured for a table that is no outbox by these settings."""
        for role, kinds in _KINDS.items():
            name = getattr(self._settings, role)
            if name is None:
                continue
            if name not in schema.column_names:
                raise Misconfigured(
                    f"the outbox {schema.table} has no column {name}, its {role}",
                    hint=f"name the column that it has in outbox.{role}; the table has"
                    f" {', '.join(schema.column_names)}",
                )
            column = schema.column(name)
            if column.logical.kind not in kinds:
                raise Misconfigured(
                    f"the column {name} of the outbox {schema.table}, its {role}, is of the type"
                    f" {column.source_type}: {_WANTED.get(role, 'a text or an integer')} is needed",
                    hint=f"change the column, or name another in outbox.{role}",
                )
        for name in schema.column_names:
            if name in columns and name not in self._maker.known:
                self._check_header(schema, name)

    def _check_header(self, schema: TableSchema, name: str) -> None:
        try:
            check_header(name)
        except InvalidEvent as error:
            raise Misconfigured(
                f"the outbox {schema.table} has a column too many: {error}",
                hint="rename it, or leave it out: publish.….columns names the others",
            ) from None


def _as_bytes(column: pa.Array, logical: LogicalType) -> list[bytes | None]:
    """Return values as they are: texts and bytes unchanged, others as JSON has them, without
    quotes."""
    if logical.kind in (Kind.STRING, Kind.BINARY):
        found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
        return found
    texts = pc.utf8_trim(json_values(column, logical), '"')
    plain: list[bytes | None] = texts.cast(pa.binary()).to_pylist()
    if column.null_count:
        known = column.is_valid().to_pylist()
        plain = [text if valid else None for text, valid in zip(plain, known, strict=True)]
    return plain


def _document(fields: Fields) -> bytes:
    """Return a row as a JSON document; what is no text is in Base64."""
    return msgspec.json.encode({name: _shown(value) for name, value in fields.items()})


def _shown(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
