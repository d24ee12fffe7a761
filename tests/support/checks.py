"""What must hold of a chain after whatever happened: order, nothing lost, nothing twice.

The chain is read with pyarrow and folded by the plain-Python twin of the merge's fold; the source
is read with plain SQL and ``::text``. Nothing of capture takes part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from devtools.simulation.fold_model import Change, fold
from tests.fixtures.settings import SourceDatabase
from tests.fixtures.source_text import column_texts, default_text
from tideline.contract.manifest import (
    Manifest,
    Part,
    SchemaEvent,
    digest,
)
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import TableSchema, Verdict
from tideline.contract.steps import StepKind
from tideline.contract.types import parse_type
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore, open_store

Texts = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Captured:
    """A whole chain, read and checked. ``changes`` by table, in seq order. ``added`` are columns
    that older rows have NULL in, by the chain's own word."""

    manifests: list[Manifest]
    changes: dict[str, list[Change]]
    schemas: dict[str, TableSchema]
    added: dict[str, set[str]] = field(default_factory=dict)

    def events(self, name: str) -> list[SchemaEvent]:
        """The schema events of a table."""
        return [e for m in self.manifests for e in m.schema_events if e.table == name]

    def table(self, name: str) -> list[Change]:
        return self.changes.get(name, [])

    def until(self, manifest_number: int) -> Captured:
        """What the chain said when that manifest was its newest."""
        manifests = self.manifests[:manifest_number]
        last = manifests[-1].last_seq
        changes = {
            name: [change for change in found if change.seq <= last]
            for name, found in self.changes.items()
        }
        return Captured(manifests, changes, self.schemas, self.added)

    def rows(self, name: str) -> dict[Texts, Texts]:
        """The rows of a table that folding the whole chain gives: key → values in column order.

        Raises AssertionError when a value of a row is nowhere in the chain.
        """
        schema = self.schemas[name]
        columns = tuple(column for column in schema.column_names if column not in schema.key)
        truncates = [t.seq for m in self.manifests for t in m.truncates if t.table == name]
        deletes_before = [
            f.seq for m in self.manifests for f in m.deletes_before if f.table == name
        ]
        delete_before = max([*deletes_before, *(seq - 1 for seq in truncates)], default=None)
        changes = [stepped(change, self.events(name)) for change in self.table(name)]
        states = fold(changes, columns, truncates=truncates, delete_before=delete_before)
        rows: dict[Texts, Texts] = {}
        for key, state in states.items():
            if state.gone:
                continue
            absent = (state.absent & set(columns)) - self.added.get(name, set())
            assert not absent, f"{name}: {sorted(absent)} of a row came with no event or dump"
            texts = dict.fromkeys(schema.column_names)
            texts |= {column: text for column, (_, text) in state.values.items()}
            texts |= dict(zip(schema.key, key, strict=True))
            rows[key] = tuple(texts[column] for column in schema.column_names)  # type: ignore[index]
        return rows


def stepped(change: Change, events: Iterable[SchemaEvent]) -> Change:
    """``change`` as if it had been written after ``events``: with their steps carried out."""
    values = dict(change.values)
    for event in events:
        for step in event.steps if event.seq > change.seq else ():
            if step.kind is StepKind.RENAME and step.was in values:
                values[step.column] = values.pop(step.was)
            elif step.kind is StepKind.DROP:
                values.pop(step.column, None)
            elif step.kind is StepKind.ADD and event.verdict == Verdict.NEUTRAL.value:
                values[step.column] = (None, default_text(step.default, parse_type(step.type)))
    return replace(change, values=values)


def read_chain(settings: Settings) -> Captured:
    """Read and check everything: links, digests, contiguous sequences, each exactly once."""
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    entries = read_links(chain)
    manifests = [entry.manifest for entry in entries]
    state = chain.open_state(entries[-1])
    schemas = {
        name: chain.read_schema(table.schema)
        for name, table in state.tables.items()
        if table.schema is not None
    }
    changes: dict[str, list[Change]] = {}
    known: dict[str, TableSchema] = {}
    for manifest in manifests:
        seqs = [np.array(_minted(manifest), np.int64)]
        for part in manifest.parts:
            if part.schema not in known:
                known[part.schema] = chain.read_schema(part.schema)
            rows = _read_part(store, part)
            seqs.append(rows.column("_tl_seq").combine_chunks().to_numpy())
            found = changes.setdefault(part.table, [])
            found.extend(_changes(rows, known[part.schema]))
        expected = np.arange(manifest.first_seq, manifest.last_seq + 1)
        number = manifest.manifest_number
        assert np.array_equal(np.sort(np.concatenate(seqs)), expected), f"sequences of {number}"
    for found in changes.values():
        found.sort(key=lambda change: change.seq)
    return Captured(manifests, changes, schemas, _added(chain, manifests))


def _added(chain: Chain, manifests: Iterable[Manifest]) -> dict[str, set[str]]:
    """The columns that came with schema events of the verdict neutral, by table."""
    added: dict[str, set[str]] = {}
    for event in (event for manifest in manifests for event in manifest.schema_events):
        if event.verdict == Verdict.NEUTRAL.value and event.before is not None:
            now, before = chain.read_schema(event.after), chain.read_schema(event.before)
            news = set(now.column_names) - set(before.column_names)
            added.setdefault(event.table, set()).update(news)
    return added


def read_links(chain: Chain) -> list[ManifestEntry]:
    """All manifests, each checked against the one before it (number, digest, seq, term)."""
    tail = chain.tail()
    assert tail is not None, "there is no chain"
    entries = list(chain.entries(1, tail.manifest.manifest_number))
    assert entries[-1].digest == tail.digest
    return entries


def check_equal(settings: Settings, database: SourceDatabase, tables: Iterable[str]) -> Captured:
    """What the chain says of ``tables`` equals the source, row by row, column by column."""
    captured = read_chain(settings)
    for table in tables:
        schema = captured.schemas[table]
        wanted = source_rows(database, schema)
        differences = compare(wanted, captured.rows(table))
        assert not differences, f"{table}: {differences[:5]} … of {len(differences)}"
    return captured


def check_history(captured: Captured, *, ledger: str, versioned: Sequence[str]) -> None:
    """No committed change is in the log twice, and no value of a key ever goes back."""
    inserts = Counter(change.key for change in captured.table(ledger) if change.op == "c")
    twice = [key for key, count in inserts.items() if count > 1]
    assert not twice, f"captured twice: {twice[:5]}"
    for table in versioned:
        stale = stale_changes(captured.table(table))
        assert not stale, f"{table}: a value went back at sequences {stale[:5]}"


def stale_changes(changes: Iterable[Change]) -> list[int]:
    """Sequences of changes that take a key's ``ver`` back, repeat one, or bring a deleted row back.

    A dumped row may repeat a version that the log told of, and nothing else may.
    """
    newest: dict[object, int] = {}
    gone: set[object] = set()
    stale = []
    for change in changes:
        if change.op == "r" and change.key in gone:
            stale.append(change.seq)
        if change.before is not None and change.before != change.key:
            gone.add(change.before)
            newest.pop(change.before, None)
            newest.pop(change.key, None)
        gone.discard(change.key)
        if change.op == "d":
            gone.add(change.key)
            newest.pop(change.key, None)
        elif "ver" in change.values:
            ver, before = int(str(change.values["ver"][1])), newest.get(change.key)
            if before is not None and (ver < before or (ver == before and change.op != "r")):
                stale.append(change.seq)
            newest[change.key] = ver
    return stale


def source_rows(database: SourceDatabase, schema: TableSchema) -> dict[Texts, Texts]:
    """The source's rows as text under UTC: key → values in column order."""
    places = [schema.column_names.index(name) for name in schema.key]
    return {tuple(row[place] for place in places): row for row in database.texts(schema)}


def end_lsn(manifest: Manifest) -> int:
    """Where PostgreSQL's log goes on after ``manifest``."""
    assert isinstance(manifest.position, PostgresPosition)
    return manifest.position.end_lsn


def compare(wanted: dict[Texts, Texts], found: dict[Texts, Texts]) -> list[str]:
    """Differences by key, in words; values are left out."""
    lines = [f"{key} is missing" for key in wanted.keys() - found.keys()]
    lines += [f"{key} should not be" for key in found.keys() - wanted.keys()]
    for key in wanted.keys() & found.keys():
        places = [
            place
            for place, (a, b) in enumerate(zip(wanted[key], found[key], strict=True))
            if a != b
        ]
        if places:
            lines.append(f"{key} differs in columns {places}")
    return sorted(lines)


def _minted(manifest: Manifest) -> list[int]:
    events = [event.seq for event in manifest.schema_events]
    return events + [truncate.seq for truncate in manifest.truncates]


def _read_part(store: ObjectStore, part: Part) -> pa.Table:
    data = store.get(part.key)
    assert data is not None, f"{part.key} is missing"
    assert (len(data), digest(data)) == (part.bytes, part.digest), part.key
    table = pq.read_table(pa.BufferReader(data))
    seqs = table.column("_tl_seq").combine_chunks().to_numpy()
    assert table.num_rows == part.rows
    assert (seqs[0], seqs[-1]) == (part.first_seq, part.last_seq)
    assert np.all(np.diff(seqs) > 0), f"{part.key} is out of order"
    return table


def _changes(table: pa.Table, schema: TableSchema) -> list[Change]:
    if not table.num_rows:
        return []
    batch = table.combine_chunks().to_batches()[0]
    names = batch.schema.names
    texts = {c.name: column_texts(batch, c.name, c.logical) for c in schema.columns}
    befores: dict[str, list[str | None]] = {}
    for name in schema.key:
        column = f"_tl_before_{name}"
        if column in names:
            befores[name] = column_texts(batch, column, schema.column(name).logical)
    unchanged = batch.column("_tl_unchanged").to_pylist() if "_tl_unchanged" in names else None
    seqs = batch.column("_tl_seq").to_pylist()
    operations = batch.column("_tl_op").to_pylist()
    values = [name for name in schema.column_names if name not in schema.key]
    changes = []
    for at, (seq, operation) in enumerate(zip(seqs, operations, strict=True)):
        left_out = set(unchanged[at] or ()) if unchanged else set()
        carried: dict[str, tuple[object, str | None]] = {}
        if operation != "d":
            carried = {n: (None, texts[n][at]) for n in values if n not in left_out}
        key: tuple[Any, ...] = tuple(texts[name][at] for name in schema.key)
        before = None
        if befores and befores[schema.key[0]][at] is not None:
            before = tuple(befores[name][at] for name in schema.key)
        changes.append(Change(seq, operation, key, carried, before))
    return changes
