"""The warehouse in plain Python: real merge plans, folded and merged as the merge's SQL says.

`devtools.simulation.fold_model` folds, and what the MERGE does with the folded rows is done here,
key by key, so that the table after every one of many merges can be looked at without a JVM.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from devtools.simulation.fold_model import Change, Key, State, fold
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.plan import Applied, PlanScope, TablePlan
from tideline.contract.planning.maker import make_plan
from tideline.contract.schema import TableSchema

_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Stored:
    """A row: the texts of its columns without the key's; ``pending`` ones have none yet."""

    seq: int
    values: Mapping[str, str | None]
    pending: frozenset[str] = frozenset()


@dataclass(slots=True)
class Target:
    """One table, and the manifest that it has applied."""

    rows: dict[Key, Stored] = field(default_factory=dict)
    manifest: int | None = None
    seq: int = 0
    generation: int = 0


class Warehouse:
    """``changes`` are those of each part, by its key; ``manifests`` all of the chain."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        schemas: Mapping[str, TableSchema],
        changes: Mapping[str, Sequence[Change]],
    ) -> None:
        self.targets: dict[str, Target] = {}
        self._manifests = manifests
        self._schemas = schemas
        self._changes = changes

    def merge(self, number: int, state: OpenState, *, but: Container[str] = ()) -> list[TablePlan]:
        """Bring every table, ``but`` these, to manifest ``number``, whose open state is ``state``;
        the plan of each table that anything was done to, in order."""
        scope = PlanScope(
            plan_id=f"until-{number}",
            store_url="memory://",
            warehouse_url="memory://",
            parts_max=_NO_LIMIT,
            bytes_max=_NO_LIMIT,
            tables=tuple(name for name in state.tables if name not in but),
        )
        plan = make_plan(
            scope,
            self._manifests[:number],
            state=state,
            applied={name: self._applied(name, table) for name, table in self._of(state).items()},
            schemas=self._schemas,
            tail=number,
        )
        for table in plan.tables:
            self._apply(table)
        return list(plan.tables)

    def _of(self, state: OpenState) -> dict[str, Target]:
        """The targets as far as they are of the present generation."""
        found = {}
        for name, table in state.tables.items():
            target = self.targets.setdefault(name, Target())
            found[name] = target if target.generation == table.generation else Target()
        return found

    def _applied(self, name: str, target: Target) -> Applied:
        exists = self.targets[name].manifest is not None
        return Applied(manifest=target.manifest, seq=target.seq, exists=exists)

    def _apply(self, plan: TablePlan) -> None:
        target = Target() if plan.create else self.targets[plan.table]
        columns = tuple(name for name in plan.schema.column_names if name not in plan.schema.key)
        changes = [change for part in plan.parts for change in self._changes[part.key]]
        states = fold(changes, columns, truncates=plan.truncates, delete_before=plan.delete_before)
        rows = dict(target.rows)
        for key, row in target.rows.items():
            old = plan.delete_before is not None and (
                row.seq <= plan.delete_before or row.seq > plan.from_seq
            )
            if old and key not in states:
                del rows[key]
        for key, folded in states.items():
            stands = target.rows.get(key)
            if stands is not None and not stands.seq < folded.seq and stands.seq <= plan.from_seq:
                continue
            if folded.gone:
                rows.pop(key, None)
            else:
                rows[key] = _filled(folded, columns, target.rows)
        self.targets[plan.table] = Target(rows, plan.to_manifest, plan.to_seq, plan.generation)


def _filled(state: State, columns: Sequence[str], rows: Mapping[Key, Stored]) -> Stored:
    """The row; what the range does not supply comes from the target's row of the key it had."""
    origin = None if state.origin is None else rows.get(state.origin)
    values = {name: state.values[name][1] for name in columns if name not in state.absent}
    if origin is None:
        return Stored(state.seq, values, state.absent)
    pending = state.absent & (origin.pending | (state.absent - origin.values.keys()))
    kept = {name: origin.values[name] for name in state.absent - pending}
    return Stored(state.seq, {**values, **kept}, pending)
