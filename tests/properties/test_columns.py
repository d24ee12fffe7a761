"""Columns that are added, dropped, renamed, exchanged and replaced at random, while the log is read
late, and the catalog at any moment: what the chain says of them makes the source's rows, or the
table is in doubt and is dumped.

The source keeps its columns by number. The reader lags behind, so that what the catalog says when
the log describes a table may be of a later time. A worker may end and be followed at any segment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.core import EVERYTHING, POLICY, first_manifest, limits_with
from tideline.contract.open_state import ColumnNumbers, TableCondition
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import Column, TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.chunks import Chunk, ChunkOrder, ChunkRead
from tideline_capture.core.events import (
    Boundary,
    Control,
    LogBatch,
    Rows,
    SchemaSeen,
    StatementSeen,
    Watermark,
    WatermarkKind,
)
from tideline_capture.core.facts import CatalogRound, TableFacts
from tideline_capture.core.segment import Segment
from tideline_capture.core.worker import Worker

TABLE = "public.t"
NAMES = ("a", "b", "c", "A")
SEEDS = 150
ACTIONS = 60
POLICY_HERE = replace(POLICY, applies=lambda table, kind: True)
_KINDS = ("add", "add", "drop", "rename", "swap", "replace")

Row = dict[int, str | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. ``row``: (id, values by name; None: deleted) of a table that is
    ``schema``; ``news``: it was altered since the row before."""

    mark: Watermark | None = None
    statement: StatementSeen | None = None
    schema: TableSchema | None = None
    row: tuple[int, dict[str, str | None] | None] | None = None
    news: bool = False


@dataclass(slots=True)
class Source:
    """The table as everybody sees it, and the log."""

    rng: random.Random
    numbered: bool
    """Whether the source numbers columns, and logs no statements."""
    names: dict[int, str] = field(default_factory=lambda: {1: "id", 2: "a", 3: "b"})
    missing: dict[int, str] = field(default_factory=dict)
    last: int = 3
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)
    altered: bool = True
    writes: int = 0

    @property
    def schema(self) -> TableSchema:
        numbers = sorted(self.names)
        columns = tuple(
            Column(self.names[n], "int64" if n == 1 else "string", "t", nullable=n != 1)
            for n in numbers
        )
        return TableSchema(TABLE, columns, (self.names[1],))

    @property
    def facts(self) -> TableFacts:
        filled = {self.names[n]: text for n, text in self.missing.items() if n in self.names}
        numbers = tuple(sorted(self.names))
        return TableFacts(
            table=TABLE,
            schema=self.schema,
            oid=1,
            storage="10",
            columns=tuple(f"{n if self.numbered else ''}{self.names[n]}" for n in numbers),
            members="m+",
            key_definition=f"1:{self.names[1]}",
            membership="1",
            backfilled=tuple(filled) if self.numbered else (),
            numbers=ColumnNumbers(1, numbers, self.last) if self.numbered else None,
            defaults=filled if self.numbered else {},
        )

    def named(self, row: Row) -> dict[str, str | None]:
        """A row's values by name."""
        values = {n: row.get(n, self.missing.get(n)) for n in self.names if n != 1}
        return {self.names[n]: value for n, value in values.items()}

    def write(self) -> None:
        key = self.rng.randrange(6)
        self.writes += 1
        if key in self.rows and self.rng.random() < 0.2:
            del self.rows[key]
            self._log(key, None)
            return
        self.rows[key] = {
            n: None if self.rng.random() < 0.1 else f"{self.writes}.{n}" for n in self.names
        }
        self._log(key, self.named(self.rows[key]))

    def _log(self, key: int, values: dict[str, str | None] | None) -> None:
        self.log.append(Entry(schema=self.schema, row=(key, values), news=self.altered))
        self.altered = False

    def alter(self) -> None:
        """One statement."""
        steps = self._change()
        if not steps:
            return
        self.altered = True
        if not self.numbered:
            seen = StatementSeen("ALTER …", (TABLE,), True, steps=tuple(steps))
            if self.rng.random() < 0.1:
                seen = replace(seen, neutral=False, steps=None)
            self.log.append(Entry(statement=seen))

    def _change(self) -> list[ColumnStep]:
        used = {name.lower() for name in self.names.values()}
        free = [name for name in NAMES if name.lower() not in used]
        own = [n for n in self.names if n != 1]
        kind = self.rng.choice((*_KINDS, *_KINDS, "key"))
        if kind == "add" and free:
            return [self._add(self.rng.choice(free))]
        if kind == "drop" and own:
            number = self.rng.choice(own)
            return [ColumnStep(StepKind.DROP, self.names.pop(number))]
        if kind == "rename" and own and free:
            return [self._rename(self.rng.choice(own), self.rng.choice(free))]
        if kind == "key":
            return [self._rename(1, "id" if self.names[1] == "pk" else "pk")]
        if kind == "swap" and len(own) > 1:
            one, two = self.rng.sample(own, 2)
            first, second = self.names[one], self.names[two]
            self.names[one], self.names[two] = second, first
            return [
                ColumnStep(StepKind.RENAME, second, was=first),
                ColumnStep(StepKind.RENAME, first, was=second),
            ]
        if kind == "replace" and own:
            name = self.names.pop(self.rng.choice(own))
            return [ColumnStep(StepKind.DROP, name), self._add(name)]
        return []

    def _rename(self, number: int, name: str) -> ColumnStep:
        was, self.names[number] = self.names[number], name
        return ColumnStep(StepKind.RENAME, name, was=was)

    def _add(self, name: str) -> ColumnStep:
        self.last += 1
        self.names[self.last] = name
        default = self.rng.choice((None, f"default {self.last}"))
        if default is not None:
            self.missing[self.last] = default
        return ColumnStep(StepKind.ADD, name, default=default)


class Target:
    """What a warehouse makes of the chain: rows by key, with their sequences."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, dict[str, str | None]]] = {}
        self.kinds: Counter[str] = Counter()

    def take(self, sealed: Segment) -> None:
        happened: list[tuple[int, object]] = [(event.seq, event) for event in sealed.schema_events]
        for rows in sealed.rows:
            for row in rows.batch.to_pylist():
                key = rows.schema.key[0]
                values = {n: row[n] for n in rows.schema.column_names if n != key}
                happened.append((row["_tl_seq"], (row[key], row["_tl_op"], values)))
        for seq, what in sorted(happened, key=lambda one: one[0]):
            if isinstance(what, tuple):
                key, op, values = what
                self.rows.pop(key, None)
                if op != "d":
                    self.rows[key] = (seq, values)
            else:
                for step in what.steps:  # type: ignore[attr-defined]
                    self._step(step)
                    self.kinds[step.kind.value] += what.verdict == "neutral"  # type: ignore[attr-defined]
        for delete_before in sealed.deletes_before:
            self.rows = {k: row for k, row in self.rows.items() if row[0] > delete_before.seq}

    def _step(self, step: ColumnStep) -> None:
        for _, values in self.rows.values():
            if step.kind is StepKind.ADD:
                values[step.column] = step.default
            elif step.kind is StepKind.DROP:
                values.pop(step.column, None)
            elif step.kind is StepKind.RENAME and step.was in values:
                values[step.column] = values.pop(step.was)


class World:
    """Source, reader, worker and target, and chance between them."""

    def __init__(self, seed: int, *, numbered: bool) -> None:
        self.rng = random.Random(seed)
        self.source = Source(self.rng, numbered)
        self.target = Target()
        self.core = self._worker(None)
        self.token = 0
        self.at = 0
        self.lsn = 0
        self.now = 0.0
        self.known: TableSchema | None = None
        self.chunk: ChunkOrder | None = None
        self.dumps = 0
        self.quiet = True

    def _worker(self, before: Worker | None) -> Worker:
        tokens = iter(range(1 << 30))
        name = self.rng.random()
        tail = first_manifest()
        schemas: Mapping[str, TableSchema] = {}
        state = tail.state
        if before is not None:
            state, schemas = before.state.open_state(), before.state.schemas
            tail = first_manifest(last_seq=before.state.last_seq)
        assert state is not None
        return Worker(
            tail,
            state,
            dict(schemas),
            limits=limits_with(chunk_rows=1000),
            policy=POLICY_HERE,
            token=lambda: f"{name}.{next(tokens)}",
        )

    def run(self) -> None:
        self.round()
        self.read(len(self.source.log))
        self.quiet = False
        for _ in range(ACTIONS):
            action = self.rng.choice(("write", "write", "write", "alter", "alter", "read", "round"))
            action = "close_segment" if self.rng.random() < 0.05 else action
            getattr(self, action)()
            if self.chunk is None and self.rng.random() < 0.3:
                self.begin_chunk()
            elif self.chunk is not None and self.rng.random() < 0.3:
                self.end_chunk()
        self.settle()

    def settle(self) -> None:
        """Everything is read, and every dump ends."""
        self.quiet = True
        for _ in range(6):
            self.round()
            self.read(len(self.source.log))
            if self.chunk is None:
                self.begin_chunk()
            if self.chunk is not None:
                self.end_chunk()
            self.read(len(self.source.log))
        self.flush()

    def write(self) -> None:
        self.source.write()

    def alter(self) -> None:
        self.source.alter()

    def close_segment(self) -> None:
        """A segment ends, and maybe its worker with it."""
        self.flush()
        if self.chunk is None and self.rng.random() < 0.5:
            self.core, self.known = self._worker(self.core), None

    def flush(self) -> None:
        sealed = self.core.close_segment(now=self.now, force=True)
        if sealed is not None:
            self.dumps += len(sealed.deletes_before)
            self.target.take(sealed)

    def round(self) -> None:
        """The catalog is read between two watermarks."""
        self.token += 1
        token = f"round {self.token:06d}"
        self._mark(WatermarkKind.CATALOG_LOW, token)
        self._meanwhile()
        self.core.on_catalog(CatalogRound(token, (self.source.facts,), EVERYTHING))
        self._meanwhile()
        self._mark(WatermarkKind.HEARTBEAT, token)

    def _meanwhile(self) -> None:
        for _ in range(0 if self.quiet else self.rng.choice((0, 0, 0, 1, 2))):
            self.rng.choice((self.source.write, self.source.alter))()

    def begin_chunk(self) -> None:
        self.now += 10
        self.chunk = self.core.next_order(now=self.now)
        if self.chunk is not None:
            self._mark(WatermarkKind.LOW, self.chunk.token)

    def end_chunk(self) -> None:
        order, source = self.chunk, self.source
        assert order is not None
        facts, schema, rows = source.facts, source.schema, sorted(source.rows)
        named = {key: source.named(source.rows[key]) for key in rows}
        columns = [
            pa.array(rows, pa.int64())
            if name == schema.key[0]
            else pa.array([named[key][name] for key in rows], pa.string())
            for name in schema.column_names
        ]
        self._meanwhile()
        self._mark(WatermarkKind.HIGH, order.token)
        last = (str(rows[-1]),) if rows else None
        self.core.on_chunk(ChunkRead(order.token, last, True), now=self.now)
        batch = pa.RecordBatch.from_arrays(columns, names=list(schema.column_names))
        chunk = Chunk(order.token, facts, batch, (), None, last, True, EVERYTHING)
        self.core.on_chunk(chunk, now=self.now)
        self.chunk = None

    def _mark(self, kind: WatermarkKind, token: str) -> None:
        self.source.log.append(Entry(mark=Watermark(kind, token, 1)))

    def read(self, count: int | None = None) -> None:
        """Some of the log; what the catalog says now may be later."""
        for _ in range(self.rng.randrange(6) if count is None else count):
            if self.at < len(self.source.log):
                self._take(self.source.log[self.at])
                self.at += 1

    def _take(self, entry: Entry) -> None:
        if entry.mark is not None:
            self._say(entry.mark)
        elif entry.statement is not None:
            self._say(entry.statement)
        elif entry.schema is not None and entry.row is not None:
            if entry.news or self.known is None or self.rng.random() < 0.1:
                self._say(self._described(entry.schema))
            if self.core.state.captures(TABLE):
                self._say(rows=_rows(entry.schema, *entry.row, self.core.state.next_seq))

    def _described(self, schema: TableSchema) -> SchemaSeen:
        news, self.known = schema != self.known, schema
        facts = self.source.facts
        reported = self.source.numbered and news and facts.schema == schema
        reported = reported and self.rng.random() < 0.9  # Else the transaction was not visible yet.
        return SchemaSeen(schema, 5, 1 if self.source.numbered else 0, facts if reported else None)

    def _say(self, *controls: Control, rows: Rows | None = None) -> None:
        self.lsn += 1
        self.core.on_batch(
            LogBatch(
                rows=(rows,) if rows else (),
                changes=1 if rows else 0,
                controls=controls,
                boundary=Boundary(PostgresPosition(self.lsn)),
                in_transaction=False,
                transactions=np.array([5], np.int64),
            ),
            now=self.now,
        )


def _rows(schema: TableSchema, key: int, values: dict[str, str | None] | None, seq: int) -> Rows:
    count = {"_tl_seq": pa.array([seq], pa.int64()), "_tl_tx": pa.array([5], pa.int64())}
    count |= {"_tl_op": pa.array(["d" if values is None else "u"])}
    count |= {"_tl_ts": pa.array([1], pa.timestamp("us", "UTC"))}
    for name in schema.column_names:
        count[name] = pa.array([(values or {}).get(name)], pa.string())
    count[schema.key[0]] = pa.array([key], pa.int64())
    return Rows(schema, pa.RecordBatch.from_arrays(list(count.values()), names=list(count)))


@pytest.mark.parametrize("numbered", [True, False], ids=["numbers", "statements"])
@pytest.mark.thorough
def test_columns_in_any_order(numbered: bool) -> None:
    live, kinds, undumped = 0, Counter[str](), 0
    for seed in range(SEEDS):
        world = World(seed, numbered=numbered)
        world.run()
        state = world.core.state.tables[TABLE]
        kinds += world.target.kinds
        undumped += world.dumps == 1 and sum(world.target.kinds.values()) > 1
        assert state.condition in (TableCondition.ACTIVE, TableCondition.NEEDS_RESNAPSHOT), (
            seed,
            state,
        )
        if state.condition is TableCondition.ACTIVE:
            live += 1
            schema = world.core.state.schema(TABLE)
            assert schema == world.source.schema, f"seed {seed}"
            found = {key: row for key, (_, row) in world.target.rows.items()}
            wanted = {key: world.source.named(row) for key, row in world.source.rows.items()}
            assert found == wanted, f"seed {seed}"
    # Most of it came to an end, much of that without a dump, and by every kind of step.
    assert live > SEEDS * 0.8
    assert undumped > SEEDS * 0.05
    assert all(kinds[kind] > SEEDS * 0.2 for kind in ("add", "drop", "rename")), kinds
