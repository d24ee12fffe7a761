"""The window of a chunk: the log's events of a table between the watermarks L and H.

Between L and H the log's events win over the chunk's rows: their keys, old and new, are collected,
and at H the chunk's other rows are emitted. One thing a dropped row may still give: a column whose
value no event supplied (unchanged TOAST). Such a row is emitted at H as a *partial* row that
carries just those columns, if the key is live at H, did not move, and no event since L supplied the
column.

Keys are compared by the source's own text of them. That is exact here, because an event carries the
very text of the row version it replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tideline.contract.part import BEFORE, OP, SEQ, TX, UNCHANGED, UPDATED
from tideline.contract.schema import TableSchema
from tideline_capture.core.chunks import ChunkOrder
from tideline_capture.core.events import Int64Array, Rows
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.snapshots.copies import Probe
from tideline_capture.core.state import CoreState

ROWS_MAX = 500_000
"""Limit of the changes of its table whose keys a window keeps. With more (one huge transaction,
whose commit lies between the watermarks) the chunk is read again after them."""


@dataclass(slots=True)
class ChunkWindow:
    """A window, open from L to H.

    ``disturbed`` says why the chunk must be read again, if it must. ``passed``: the number of each
    writer's last probe. ``catalogs``: the table's identities, by the last looks at the catalog
    before L.
    """

    order: ChunkOrder
    unseen: Int64Array
    low_seq: int
    events: list[Rows] = field(default_factory=list)
    rows: int = 0
    disturbed: str | None = None
    probes: list[Probe] = field(default_factory=list)
    passed: dict[str, int] = field(default_factory=dict)
    catalogs: frozenset[str] = frozenset()

    def saw_rows(self, rows: Rows) -> None:
        if rows.schema.table != self.order.table or self.disturbed is not None:
            return
        if self.order.keyless and self.order.after_key is not None:
            return  # It is read from a snapshot whose place is known.
        if self.order.verify:  # A comparison needs the log's events of every key since L.
            return
        self.rows += rows.batch.num_rows
        if self.rows > ROWS_MAX:
            self.disturbed = "more changes than a window holds"
            self.events.clear()
        else:
            self.events.append(_keys_only(rows))

    def pass_by(self, probe: Probe) -> None:
        """Take a probe.

        The numbers of a writer ascend; where one comes again, another user writes to our rows.
        """
        if probe.number <= self.passed.get(probe.writer, 0):
            self.saw_unknown_watermark()
            return
        self.passed[probe.writer] = probe.number
        self.probes.append(probe)

    def saw_unknown_watermark(self) -> None:
        """Note a watermark of another session: a snapshot may show that instead of our probes."""
        if self.probes:
            self.disturbed = "someone else writes to the table of watermarks"

    def saw_change_of(self, table: str, what: str) -> None:
        if table == self.order.table:
            self.disturbed = what


class ChunkCatalogs:
    """The tables' identities that chunks saw last, to find changes without an event in a window.

    A change of the catalog can change rows that no event reports (PostgreSQL's ALTER TABLE, which
    is not in its log). A chunk is then newer than such a change, and the rows that the log had in
    its window may be older: the chunk, which leaves these rows out because the log's are newer,
    must be read again. An earlier look shows that a change came before the low watermark.
    """

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._seen: dict[str, str] = {}

    def of(self, table: str) -> frozenset[str]:
        """Return the table's identities at the last looks before this place of the log.

        One is of a chunk, the other of a round.
        """
        state = self._state.tables.get(table)
        looks = (self._seen.get(table), state.catalog if state is not None else None)
        return frozenset(look for look in looks if look is not None)

    def differs(self, window: ChunkWindow, facts: TableFacts) -> bool:
        """Return whether rows of the window may be older than a change that the chunk saw."""
        self._seen[facts.table] = facts.catalog
        return bool(window.events) and facts.catalog not in window.catalogs


@dataclass(frozen=True, slots=True)
class Settled:
    """A chunk's rows, divided.

    ``whole`` are emitted as they are; each of ``partial`` is (row index, columns it does not
    carry).
    """

    whole: pa.BooleanArray
    partial: tuple[tuple[int, tuple[str, ...]], ...]


def settle(window: ChunkWindow, schema: TableSchema, chunk: pa.RecordBatch) -> Settled:
    """Divide ``chunk``'s rows by the window's events of their keys."""
    touched = _touched_keys(window.events, schema.key)
    if touched is None or not chunk.num_rows:
        return Settled(pa.array([True] * chunk.num_rows, pa.bool_()), ())
    keys = key_text(chunk, schema.key)
    inside = pc.is_in(keys, value_set=touched)
    gaps = _supplied_gaps(window.events, schema)
    if not gaps:
        return Settled(pc.invert(inside), ())
    every = frozenset(schema.column_names) - frozenset(schema.key)
    partial = [
        (index, tuple(name for name in schema.column_names if name in every - gaps[key]))
        for index, key in enumerate(keys.to_pylist())
        if key in gaps
    ]
    return Settled(pc.invert(inside), tuple(partial))


def untouched(window: ChunkWindow, schema: TableSchema, keys: pa.RecordBatch) -> pa.RecordBatch:
    """Return those rows of ``keys`` (key columns) that no event of the window named."""
    touched = _touched_keys(window.events, schema.key)
    if touched is None or not keys.num_rows:
        return keys
    return keys.filter(pc.invert(pc.is_in(key_text(keys, schema.key), value_set=touched)))


def key_text(batch: pa.RecordBatch, key: Sequence[str], prefix: str = "") -> pa.Array:
    """Return one text per row that is equal exactly when all key columns are."""
    columns = [_as_text(batch.column(prefix + name)) for name in key]
    if len(columns) == 1:
        return columns[0]
    lengths = [pc.cast(pc.binary_length(column), pa.large_string()) for column in columns]
    pieces = [piece for pair in zip(lengths, columns, strict=True) for piece in pair]
    return pc.binary_join_element_wise(*pieces, pa.scalar(":", pa.large_string()))


def moved_incomplete(rows: Rows) -> list[tuple[str, ...]]:
    """Return the new keys, as text that the source reads, of rows that moved without all their
    values."""
    if not rows.counts.before_rows or not rows.counts.unchanged_rows:
        return []
    key = rows.schema.key
    moved = pc.is_valid(rows.batch.column(BEFORE + key[0]))
    batch = rows.batch.filter(pc.and_(moved, pc.is_valid(rows.batch.column(UNCHANGED))))
    columns = [_as_input(batch.column(name)) for name in key]
    return list(zip(*columns, strict=True))


def _keys_only(rows: Rows) -> Rows:
    """Reduce ``rows`` to what `settle` needs, so that a window does not hold a huge transaction."""
    if not rows.schema.key:
        return replace(rows, batch=rows.batch.select([SEQ, TX]))
    wanted = {OP, UNCHANGED, *rows.schema.key}
    wanted.update(BEFORE + name for name in rows.schema.key)
    names = [name for name in rows.batch.schema.names if name in wanted]
    return replace(rows, batch=rows.batch.select(names))


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array(
            [None if value is None else value.hex() for value in column.to_pylist()],
            pa.large_string(),
        )
    return pc.cast(column, pa.large_string())


def _as_input(column: pa.Array) -> list[str]:
    prefix = r"\x" if pa.types.is_binary(column.type) else ""
    return [prefix + text for text in _as_text(column).to_pylist()]


def _touched_keys(events: list[Rows], key: tuple[str, ...]) -> pa.Array | None:
    arrays = []
    for rows in events:
        current = key_text(rows.batch, key)
        arrays.append(current)
        if rows.counts.before_rows:
            arrays.append(_before_keys(rows.batch, key))
    return pa.concat_arrays(arrays) if arrays else None


def _before_keys(batch: pa.RecordBatch, key: tuple[str, ...]) -> pa.Array:
    """Return the old keys of rows that moved; other rows are left out."""
    moved = batch.filter(pc.is_valid(batch.column(BEFORE + key[0])))
    return key_text(moved, key, BEFORE)


def _supplied_gaps(events: list[Rows], schema: TableSchema) -> dict[str, frozenset[str]]:
    """Return per live, unmoved key the columns that no event of the window supplied.

    Only events with unsupplied columns matter, so windows without any cost nothing.
    """
    if not any(rows.counts.unchanged_rows for rows in events):
        return {}
    gaps: dict[str, frozenset[str]] = {}
    closed: set[str] = set()
    for rows in events:
        batch = rows.batch
        keys = key_text(batch, schema.key).to_pylist()
        operations = batch.column(OP).to_pylist()
        unsupplied = _column_or_none(batch, UNCHANGED)
        moved = rows.counts.before_rows > 0
        moved_from = _moved_from(batch, schema.key) if moved else [None] * len(keys)
        for key, operation, missing, before in zip(
            keys, operations, unsupplied, moved_from, strict=True
        ):
            if before is not None:
                gaps.pop(before, None)
                closed.update((before, key))
            if operation != UPDATED or before is not None:
                gaps.pop(key, None)
                closed.add(key)
            elif key not in closed:
                now = frozenset(missing or ())
                gaps[key] = gaps[key] & now if key in gaps else now
    return {key: columns for key, columns in gaps.items() if columns}


def _moved_from(batch: pa.RecordBatch, key: tuple[str, ...]) -> list[str | None]:
    texts: list[str | None] = key_text(batch, key, BEFORE).to_pylist()
    return texts


def _column_or_none(batch: pa.RecordBatch, name: str) -> list[list[str] | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    values: list[list[str] | None] = batch.column(name).to_pylist()
    return values
