"""The warehouse, in memory: Delta-like tables, and merge runs that bring them along the chain.

Plans come from `tideline.contract.planning.maker`, the fold from `devtools.simulation.fold_model`.
This module has the MERGE itself, as `tideline_spark.statement` has it, and the one commit that
moves content and applied number together, or fails when another run's came first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from devtools.simulation.fold_model import Change, State, fold
from devtools.simulation.history import MergeCommit, Row
from devtools.simulation.rows import PartRow, read_part
from devtools.simulation.steps import Columns, flawed
from devtools.simulation.tables import ACCOUNTS, Key, digest_of, shape_of
from tideline.contract.errors import CorruptData
from tideline.contract.evolution import Ancestor, ancestors
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.plan import (
    Applied,
    Plan,
    PlanScope,
    TablePlan,
    app_id,
    start_of,
)
from tideline.contract.planning.maker import make_plan
from tideline.contract.schema import TableSchema


class Conflict(Exception):
    """An error: another run committed since this one read the target."""


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A row of a warehouse table; ``pending`` are columns whose values are still to come."""

    seq: int
    values: Mapping[str, Any]
    pending: frozenset[str] = frozenset()

    @property
    def digest(self) -> str | None:
        return None if self.pending else digest_of(self.values)

    @property
    def shape(self) -> str | None:
        return None if self.pending else shape_of(self.values)


@dataclass(slots=True)
class SimulatedTarget:
    """A warehouse table. ``version`` moves with every commit; ``applied`` is by app id."""

    exists: bool = False
    version: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    rows: dict[Key, TargetRow] = field(default_factory=dict)

    def shown(self) -> tuple[Row, ...]:
        return tuple(
            Row(key, row.values.get("ver"), row.digest, row.shape) for key, row in self.rows.items()
        )


class WarehouseParts:
    """Parts of the store by key, each read once."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self._objects = objects
        self._read: dict[str, tuple[bytes, list[PartRow]]] = {}

    def rows(self, schema: TableSchema, key: str) -> list[PartRow]:
        """Return the rows of a part; raise CorruptData for one that is missing."""
        data = self._objects.get(key)
        if data is None:
            raise CorruptData(f"part {key} is missing")
        known = self._read.get(key)
        if known is None or known[0] is not data:
            known = self._read[key] = (data, read_part(schema, data))
        return known[1]


def plan_for(
    targets: Mapping[str, SimulatedTarget],
    manifests: Sequence[Manifest],
    state: OpenState,
    schemas: Mapping[str, TableSchema],
    *,
    last_seqs: Mapping[int, int],
    parts_max: int,
) -> Plan:
    """Return the plan that brings ``targets`` as far as ``manifests`` (from 1 on) go.

    ``last_seqs`` has the last sequence of every manifest of the chain.
    """
    tail = manifests[-1]
    applied = {}
    for name, table in state.tables.items():
        target = targets[name]
        number = target.applied.get(_app(tail, name, table.generation))
        seq = last_seqs.get(start_of(table, number), 0)
        applied[name] = Applied(manifest=number, seq=seq, exists=target.exists)
    first = min(start_of(table, applied[name].manifest) for name, table in state.tables.items())
    scope = PlanScope("p", "memory://s", "memory://w", parts_max=parts_max, bytes_max=1 << 30)
    given = [one for one in manifests if one.manifest_number > first] or [tail]
    return make_plan(scope, given, state=state, applied=applied, schemas=schemas)


@dataclass(slots=True)
class Run:
    """The merge of one table of a plan, from its read of the target to its commit."""

    plan: TablePlan
    target: SimulatedTarget
    version: int
    states: dict[tuple[object, ...], State]
    flaws: frozenset[str]

    @classmethod
    def begin(
        cls,
        plan: TablePlan,
        target: SimulatedTarget,
        parts: WarehouseParts,
        flaws: frozenset[str] = frozenset(),
    ) -> Run | None:
        """Read the target, read and fold the parts; return None when there is nothing to do.

        Raises CorruptData for a part that does not hold what the plan says, and Conflict when the
        target does not stand where the plan begins.
        """
        number = target.applied.get(plan.app_id)
        if number is not None and number >= plan.to_manifest and "merges-again" not in flaws:
            return None
        begins = number is None if plan.create else number == plan.from_manifest
        if not begins and "merges-again" not in flaws:
            raise Conflict
        columns_of = Columns(plan, flaws)
        changes = [
            _change(row, plan.schema, columns_of.since(part.schema, row.seq))
            for part in plan.parts
            for row in _counted(parts, plan, part.key, part.schema, part.rows)
        ]
        columns = tuple(name for name in plan.schema.column_names if name not in plan.schema.key)
        states = fold(changes, columns, truncates=plan.truncates, delete_before=plan.delete_before)
        if "drops-tombstones" in flaws:
            states = {key: state for key, state in states.items() if not state.gone}
        return cls(plan, target, target.version, states, flaws)

    def commit(self) -> None:
        """Commit content and number, at once; raise Conflict when another run's came first."""
        target, plan = self.target, self.plan
        if target.version != self.version:
            raise Conflict
        before = {} if plan.create else _brought(target.rows, plan, self.flaws)
        target.rows = self._merged(before)
        target.exists = True
        target.version += 1
        target.applied[plan.app_id] = max(plan.to_manifest, target.applied.get(plan.app_id, 0))

    def _merged(self, before: Mapping[Key, TargetRow]) -> dict[Key, TargetRow]:
        """Compute the one MERGE. It reads the table as it was, old keys of moved rows included."""
        plan, after = self.plan, dict(before)
        for given, state in self.states.items():
            key = _key(given)
            held = before.get(key)
            if held is not None and not (state.seq > held.seq or held.seq > plan.from_seq):
                continue
            if not state.gone:
                after[key] = _row(key, state, before, plan.schema)
            elif held is not None:
                del after[key]
        if plan.delete_before is not None and "ignores-floors" not in self.flaws:
            for key, held in before.items():
                old = held.seq <= plan.delete_before or held.seq > plan.from_seq
                if key not in self.states and old:
                    del after[key]
        return after


def commit_of(run: Run, state: OpenState) -> MergeCommit:
    """Return the table after the run's commit, for the oracle."""
    plan, rows = run.plan, run.target.rows
    table = state.tables[plan.table]
    whole = plan.complete_through_us is not None and table.generation == plan.generation
    total = None
    if plan.table == ACCOUNTS and whole:
        total = sum(int(row.values["balance"] or 0) for row in rows.values())
    return MergeCommit(
        table=plan.table,
        from_manifest=plan.from_manifest,
        to_manifest=plan.to_manifest,
        applied_seq=plan.to_seq,
        rows=run.target.shown(),
        whole=whole,
        generation=plan.generation,
        starts_seq=table.generation_seq,
        total=total,
    )


def _counted(
    parts: WarehouseParts, plan: TablePlan, key: str, schema: str, count: int
) -> list[PartRow]:
    rows = parts.rows(plan.schemas[schema], key)
    if len(rows) != count:
        raise CorruptData(f"part {key} holds {len(rows)} rows instead of {count}")
    return rows


def _brought(
    rows: Mapping[Key, TargetRow], plan: TablePlan, flaws: frozenset[str]
) -> dict[Key, TargetRow]:
    """Return the target's rows, with its columns as they are at the plan's end."""
    if not plan.changes:
        return dict(rows)
    names = sorted({name for row in rows.values() for name in row.values})
    found = ancestors(names, flawed(plan.changes, flaws))

    def value(row: TargetRow, name: str) -> Any:
        one = found.get(name, Ancestor())
        return one.default if one.column is None else row.values.get(one.column)

    columns = plan.schema.column_names
    return {
        key: TargetRow(
            row.seq,
            {name: value(row, name) for name in columns},
            frozenset(n for n in columns if n in found and found[n].column in row.pending),
        )
        for key, row in rows.items()
    }


def _change(row: PartRow, schema: TableSchema, origins: Mapping[str, Ancestor]) -> Change:
    """Convert a part's row.

    A column that the part's schema lacks was NULL, or has what was filled in since.
    """
    values: dict[str, tuple[object, str | None]] = {}
    for name in schema.column_names:
        one = origins.get(name, Ancestor())
        if name not in schema.key and (one.column is None or one.column not in row.unchanged):
            value = one.default if one.column is None else row.values.get(one.column)
            values[name] = (value, None)
    return Change(row.seq, row.op, row.key, {} if row.op == "d" else values, row.before)


def _row(key: Key, state: State, before: Mapping[Key, TargetRow], schema: TableSchema) -> TargetRow:
    values = {name: value for name, (value, _) in state.values.items()}
    values |= dict(zip(schema.key, key, strict=True))
    source = None if state.origin is None else before.get(_key(state.origin))
    pending = set()
    for name in state.absent:
        if source is None or name in source.pending:
            pending.add(name)
        values[name] = None if source is None else source.values.get(name)
    return TargetRow(state.seq, values, frozenset(pending))


def _key(key: tuple[object, ...]) -> Key:
    return cast(Key, key)


def _app(tail: Manifest, table: str, generation: int) -> str:
    return app_id(tail.pipeline, tail.incarnation, table, generation)


def digest_table(target: SimulatedTarget) -> str:
    """Return one text for all of a table, sequences included."""
    rows = [f"{key!r}@{row.seq}:{row.shape}" for key, row in target.rows.items()]
    return "\n".join(sorted(rows))
