"""Applies a manifest's changes to the state, and yields the documents that follow from them.

Each document belongs to the last change of its transaction. Where documents were withheld
(`completeness`), all that are due come together, at the end of the first manifest behind which none
lacks anything. It all follows from the chain alone: when a manifest is applied again, the same
documents follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tideline.contract.aggregates import Aggregate, tables
from tideline.contract.manifest import Manifest, SchemaEvent, Truncate
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.part import CREATED, DELETED, DUMPED, UPDATED
from tideline.contract.schema import TableSchema
from tideline_publish.aggregates.completeness import Completeness
from tideline_publish.aggregates.documents import Documents
from tideline_publish.aggregates.rows import RowChange, Values
from tideline_publish.aggregates.schema_steps import reshaped
from tideline_publish.aggregates.state import AggregateState

Change = RowChange | Truncate | SchemaEvent


@dataclass(frozen=True, slots=True)
class DocumentEvent:
    """A document that changed, or went (``op`` ``d``, no ``document``): of the aggregate at that
    place in the definition. ``part`` counts the documents of one sequence from 0."""

    aggregate: int
    seq: int
    part: int
    op: str
    tx: int
    ts_us: int
    key: bytes
    document: bytes | None


class ReadSchema(Protocol):
    def __call__(self, fingerprint: str) -> TableSchema: ...


class AggregateTracker:
    """The state after the manifests that were applied.

    ``emitted_seq``: every document up to it was yielded. ``lacking``: why documents are withheld;
    ``problem``: the definition does not fit the tables.
    """

    def __init__(self, aggregates: Sequence[Aggregate], read_schema: ReadSchema) -> None:
        self._aggregates = aggregates
        self._read_schema = read_schema
        self.state = AggregateState(aggregates)
        self.schemas: dict[str, TableSchema] = {}
        self.complete = Completeness(aggregates)
        self.generations: dict[str, int] = {}
        self.tables: Mapping[str, TableState] = {}
        self.emitted_seq = 0
        self.lacking: str | None = "nothing was read yet"
        self.problem: str | None = None
        self._documents = Documents(aggregates, self.state, self.schemas)
        self._members = frozenset(tables(aggregates))
        self._open: _ChangeGroup | None = None

    def close(self) -> None:
        """Remove the local file."""
        self.state.close()

    def begin_behind(self, seq: int) -> None:
        """Forget the rows: what came up to ``seq`` cannot be read any more."""
        self.state.clear()
        self._open = None
        self.complete.base_seq, self.complete.dumped = seq, {}

    def begin_at(self, states: Mapping[str, TableState]) -> None:
        """Take in the open state behind a checkpoint that was loaded."""
        self.tables = states
        self.problem = self.complete.problem(self.schemas)
        self.lacking = self.complete.lacking(states) or self.problem

    def has(self, table: str) -> bool:
        """Return whether ``table`` is a member."""
        return table in self._members

    def apply(
        self, manifest: Manifest, open_state: OpenState | None, changes: Iterator[Change]
    ) -> Iterator[DocumentEvent]:
        """Apply the ``changes`` of ``manifest``, in order, and yield the documents. ``open_state``
        is the manifest's, None where the last one still holds."""
        if open_state is not None:
            self.tables = open_state.tables
        self._note_dumps(manifest)
        lacking = self.complete.lacking(self.tables)
        # The first rows of a manifest may come before the end of a dump in it.
        withhold = lacking is not None or self.lacking is not None or self.state.any_due()
        self._open = None
        yield from self._run(changes, withhold=withhold)
        group = self._left_open()
        if group is None or group.seq == manifest.last_seq:
            self._remove_older(manifest)
        if group is not None and not withhold:
            yield from self._flush(group)
        self._remove_older(manifest)
        self.lacking = lacking or self.problem
        if self.lacking is not None:
            return
        if self.state.any_due() and manifest.last_seq > self.emitted_seq:
            yield from self._flush(_ChangeGroup(manifest.last_seq, 0, manifest.through_us or 0))
        if not self.state.any_due():
            self.emitted_seq = manifest.last_seq

    def _left_open(self) -> _ChangeGroup | None:
        return self._open

    def _run(self, changes: Iterator[Change], *, withhold: bool) -> Iterator[DocumentEvent]:
        """Apply ``changes``, and yield the documents of each group but the last, which stays
        open. A schema event belongs to the transaction of the next row, as far as there is one."""
        shapes: list[SchemaEvent] = []
        for change in changes:
            if isinstance(change, SchemaEvent):
                shapes.append(change)
                continue
            begun = _ChangeGroup(
                change.seq, change.tx, _time_of(change, self._open), _is_alone(change)
            )
            yield from self._next_group(begun, withhold=withhold)
            for shape in shapes:
                self._reshape(shape)
            shapes.clear()
            self._apply_one(change)
            self._open = begun
        if shapes:
            begun = _ChangeGroup(shapes[-1].seq, 0, 0, alone=True)
            yield from self._next_group(begun, withhold=withhold)
            for shape in shapes:
                self._reshape(shape)
            self._open = begun

    def _next_group(self, begun: _ChangeGroup, *, withhold: bool) -> Iterator[DocumentEvent]:
        group = self._open
        if group is not None and not group.goes_on_as(begun):
            if not withhold:
                yield from self._flush(group)
            self._open = None

    def _apply_one(self, change: RowChange | Truncate) -> None:
        if isinstance(change, Truncate):
            for key in self.state.keys(change.table):
                self._remove(change.table, key)
        elif change.op == DELETED:
            self._remove(change.table, change.key)
        else:
            self._write(change)

    def _write(self, change: RowChange) -> None:
        table = change.table
        before = self.state.get(table, change.old_key or change.key)
        values = change.values
        schema = self.schemas[table]
        if before is not None and any(name not in values for name in schema.column_names):
            values = {**before.values, **values}
        if change.op == DUMPED and before is not None and before.values == values:
            self.state.touch(table, change.key, change.seq)
            return
        if change.old_key is not None:
            self._remove(table, change.old_key)
            before = self.state.get(table, change.key)
        if before is not None:
            self._documents.mark(table, change.key, before.values)
        self.state.put(table, change.key, change.seq, values)
        self._documents.mark(table, change.key, values, made=before is None)

    def _remove(self, table: str, key: str) -> None:
        before = self.state.get(table, key)
        if before is not None:
            self._documents.mark(table, key, before.values)
            self.state.remove(table, key)

    def _reshape(self, event: SchemaEvent) -> None:
        """Take in a schema; rows that were there get its columns."""
        table, schema = event.table, self._read_schema(event.after)
        before = self.schemas.get(table)
        self.schemas[table] = schema
        self.problem = self.complete.problem(self.schemas)
        if before is None or before == schema or not event.steps:
            return
        change = reshaped(before, schema, event.steps)
        for key in self.state.keys(table):
            row = self.state.get(table, key)
            assert row is not None
            self._documents.mark(table, key, row.values)
            values: Values = change(row.values)
            self.state.put(table, key, row.seq, values)
            self._documents.mark(table, key, values)

    def _note_dumps(self, manifest: Manifest) -> None:
        for one in manifest.deletes_before:
            if one.table in self._members:
                self.complete.dumped[one.table] = one.seq

    def _remove_older(self, manifest: Manifest) -> None:
        """Remove the rows that a whole dump did not find, and those of an earlier generation."""
        for one in manifest.deletes_before:
            if one.table in self._members:
                self._remove_through(one.table, one.seq)
        for table in self._members & self.tables.keys():
            begun = self.tables[table].generation_seq
            if begun > self.generations.get(table, 0):
                self.generations[table] = begun
                self._remove_through(table, begun)

    def _remove_through(self, table: str, seq: int) -> None:
        for key in self.state.keys(table, seq):
            self._remove(table, key)

    def _flush(self, group: _ChangeGroup) -> Iterator[DocumentEvent]:
        """Yield the documents that are due, at the end of ``group``; none while the definition does
        not fit the tables: they stay due."""
        part = 0
        if self.problem is not None:
            return
        for root in self.state.due():
            document = self._documents.document(root.aggregate, root.key)
            if document is None and not root.existed:
                continue
            op = _operation(group, existed=root.existed, there=document is not None)
            key = self._documents.key_object(root.aggregate, root.key)
            yield DocumentEvent(
                root.aggregate, group.seq, part, op, group.tx, group.ts_us, key, document
            )
            part += 1
        self.state.forget_due()


@dataclass(frozen=True, slots=True)
class _ChangeGroup:
    """Changes that were committed together, up to ``seq``; ``alone``: nothing joins it."""

    seq: int
    tx: int
    ts_us: int
    alone: bool = False

    def goes_on_as(self, later: _ChangeGroup) -> bool:
        """Return whether ``later`` is of the same transaction. Numbers of two servers' may be the
        same; one that dumped rows have is none."""
        if self.alone or later.alone or self.tx != later.tx:
            return False
        return self.tx == 0 or self.ts_us == later.ts_us or 0 in (self.ts_us, later.ts_us)


def _time_of(change: RowChange | Truncate, group: _ChangeGroup | None) -> int:
    """Return when a change was committed, 0 where that is not known: of a truncate, unless its
    transaction, which may be ``group``, has rows before it."""
    if isinstance(change, RowChange):
        return change.ts_us
    return group.ts_us if group is not None and group.tx == change.tx else 0


def _is_alone(change: RowChange | Truncate) -> bool:
    return isinstance(change, Truncate) and change.tx == 0


def _operation(group: _ChangeGroup, *, existed: bool, there: bool) -> str:
    if not there:
        return DELETED
    if group.tx == 0:
        return DUMPED
    return UPDATED if existed else CREATED


def read_once(read: Callable[[str], TableSchema]) -> ReadSchema:
    """Return ``read`` with a memory."""
    known: dict[str, TableSchema] = {}

    def found(fingerprint: str) -> TableSchema:
        if fingerprint not in known:
            known[fingerprint] = read(fingerprint)
        return known[fingerprint]

    return found
