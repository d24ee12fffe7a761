"""Gathers what a merge plan is made from, and stores the plan before anyone runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tideline.contract import layout
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import Manifest, OpenState, TableCondition, TableState
from tideline.contract.plan import Applied, Plan, PlanScope, decode_plan, encode_plan, start_of
from tideline.contract.planning import make_plan
from tideline.contract.receipt import Receipt, decode_receipt
from tideline.contract.schema import TableSchema
from tideline.planner.progress import foreign_owner, target_of
from tideline.planner.targets import Target
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store

MANIFESTS_MAX = 20_000
"""Manifests that one group of a plan looks at; a longer backlog takes several plans."""
GROUPS_MAX = 4
"""Tables far behind (new, or failing) fill a plan's caps; those ahead of them are planned apart,
so that one table's backlog does not hold up the others."""


def plan_merge(settings: Settings, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
    """The stored plan of ``plan_id``, made now if there is none: all tables, or those named.

    A plan without tables says that nothing waits; one with ``b < tail`` that more waits after it.
    Raises Misconfigured for a pipeline without a manifest, for a table that the chain does not
    know, and, naming all of them, for targets that belong to another history.
    """
    store = open_store(settings.store)
    key = layout.plan_key(settings.pipeline, plan_id)
    stored = store.get(key)
    if stored is not None:
        return decode_plan(stored)
    plan = _Planning(settings, store).plan(plan_id, tables)
    if store.create(key, encode_plan(plan)):
        return plan
    raced = store.get(key)
    if raced is None:
        raise CorruptData(f"the plan at {key} vanished")
    return decode_plan(raced)


def read_receipt(settings: Settings, plan_id: str) -> Receipt | None:
    """The receipt of a plan; None while no run of it has written one."""
    raw = open_store(settings.store).get(layout.receipt_key(settings.pipeline, plan_id))
    return None if raw is None else decode_receipt(raw)


@dataclass(frozen=True, slots=True)
class _Start:
    """What is applied of a table, and the first manifest that a plan needs (None: none)."""

    applied: Applied
    first: int | None

    def starved(self, b: int) -> bool:
        """Whether a plan that ends at ``b`` gives this table nothing although something waits."""
        return self.first is not None and self.first > b


class _Planning:
    """One plan in the making."""

    def __init__(self, settings: Settings, store: ObjectStore) -> None:
        self._settings = settings
        self._chain = Chain(store, settings.pipeline)
        self._last_seqs: dict[int, int] = {0: 0}

    def plan(self, plan_id: str, tables: Sequence[str] | None) -> Plan:
        settings = self._settings
        link = self._chain.tail()
        if link is None:
            raise Misconfigured(
                f"pipeline {settings.pipeline} has no manifest in {settings.store.url}",
                hint="start `tideline capture`, or correct store.url",
            )
        tail, state = link.manifest, self._chain.open_state(link)
        chosen = _chosen(state, tables)
        starts = self._starts(chosen, tail)
        plans: list[Plan] = []
        group: Sequence[str] = tuple(chosen)
        while group and len(plans) < GROUPS_MAX:
            scope = PlanScope(
                plan_id=plan_id,
                store_url=settings.store.url,
                warehouse_url=settings.warehouse.url,
                parts_max=settings.merge.parts_max,
                bytes_max=settings.merge.bytes_max,
                tables=tuple(group),
            )
            plan = self._group(scope, starts, state, tail)
            plans.append(plan)
            group = [name for name in group if name in starts and starts[name].starved(plan.b)]
        return msgspec.structs.replace(
            plans[0],
            b=plans[-1].b,
            tables=tuple(table for plan in plans for table in plan.tables),
            held={name: why for plan in plans for name, why in plan.held.items()},
        )

    def _group(
        self, scope: PlanScope, starts: Mapping[str, _Start], state: OpenState, tail: Manifest
    ) -> Plan:
        """The plan of the scope's tables, which share one ``b``."""
        names = set(scope.tables or ())
        firsts = [s.first for name, s in starts.items() if name in names and s.first is not None]
        first = min(firsts, default=tail.manifest_number)
        last = min(tail.manifest_number, first + MANIFESTS_MAX - 1)
        manifests = [link.manifest for link in self._chain.links(first, last)]
        tables = {name: table for name, table in state.tables.items() if name in names}
        return make_plan(
            scope,
            manifests,
            state=state,
            applied={name: start.applied for name, start in starts.items()},
            schemas=self._schemas(tables, manifests),
            tail=tail.manifest_number,
        )

    def _starts(self, tables: Mapping[str, TableState], tail: Manifest) -> dict[str, _Start]:
        earlier = self._earlier_state(tail)
        targets = {
            name: target_of(self._settings, tail, name, table)
            for name, table in tables.items()
            if table.schema is not None
        }
        owners = [foreign_owner(target, tail, name) for name, target in targets.items()]
        foreign = [owner for owner in owners if owner is not None]
        if foreign:
            raise Misconfigured(
                f"{len(foreign)} targets belong to another history than pipeline {tail.pipeline},"
                f" incarnation {tail.incarnation}: {'; '.join(foreign)}",
                hint="remove or move these tables to have them built anew, or name another"
                " warehouse.url",
            )
        return {
            name: self._start(tables[name], target, tail, earlier.tables.get(name))
            for name, target in targets.items()
        }

    def _start(
        self, table: TableState, target: Target, tail: Manifest, earlier: TableState | None
    ) -> _Start:
        a = start_of(table, target.applied)
        if a > tail.manifest_number:
            problem = (
                f"the target has applied manifest {a}, which the chain does not reach: it was set"
                " back, or this is another store; remove the table to have it built anew"
            )
            return _Start(Applied(manifest=a, exists=True, problem=problem), None)
        if target.went_back and tail.manifest_number - a > MANIFESTS_MAX:
            problem = "the target was set back (RESTORE) and is far behind: remove the table"
            return _Start(Applied(manifest=a, exists=True, problem=problem), None)
        clear_until = 0
        if tail.state_at is not None and (earlier is None or earlier.last_data_manifest <= a):
            clear_until = tail.state_at
        if self._stands_at_block(table, a):
            clear_until = tail.manifest_number
        applied = Applied(
            manifest=target.applied,
            seq=self._last_seq(a),
            exists=target.exists,
            clear_until=clear_until,
            went_back=target.went_back,
        )
        moved = table.last_data_manifest > a and clear_until < tail.manifest_number
        return _Start(applied, max(a, clear_until) + 1 if moved else None)

    def _stands_at_block(self, table: TableState, a: int) -> bool:
        """Whether the next manifest is the one that a blocked table stops before."""
        if table.condition is not TableCondition.BLOCKED or table.since_seq is None:
            return False
        following = self._chain.read(a + 1)
        return following is not None and following.manifest.last_seq >= table.since_seq

    def _earlier_state(self, tail: Manifest) -> OpenState:
        """The newest full open state behind the tail: what had data by then is known from it."""
        if tail.state_at is None:
            return OpenState()
        link = self._chain.read(tail.state_at)
        if link is None or link.manifest.state is None:
            raise CorruptData(f"manifest {tail.state_at} has no open state")
        return link.manifest.state

    def _last_seq(self, manifest_number: int) -> int:
        if manifest_number not in self._last_seqs:
            link = self._chain.read(manifest_number)
            if link is None:
                raise CorruptData(f"manifest {manifest_number} is missing")
            self._last_seqs[manifest_number] = link.manifest.last_seq
        return self._last_seqs[manifest_number]

    def _schemas(
        self, tables: Mapping[str, TableState], manifests: Sequence[Manifest]
    ) -> dict[str, TableSchema]:
        wanted = {table.schema for table in tables.values()}
        for manifest in manifests:
            wanted |= {part.schema for part in manifest.parts if part.table in tables}
            for event in manifest.schema_events:
                if event.table in tables:
                    wanted |= {event.before, event.after}
        return {name: self._chain.read_schema(name) for name in sorted(filter(None, wanted))}


def _chosen(state: OpenState, tables: Sequence[str] | None) -> dict[str, TableState]:
    """The tables asked for, by name; all that the chain knows when none are named."""
    if tables is None:
        return dict(state.tables)
    unknown = sorted(set(tables) - set(state.tables))
    if unknown:
        raise Misconfigured(
            f"the chain of this pipeline has no table {', '.join(unknown)}",
            hint="`tideline status` lists the tables; a new one appears once it is captured",
        )
    return {name: state.tables[name] for name in tables}
