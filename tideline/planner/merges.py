"""Gathers what a merge plan is made from, and stores the plan before anyone runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tideline.contract import layout
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import (
    Manifest,
    OpenState,
    TableCondition,
    TableState,
    tables_in,
)
from tideline.contract.modes import Mode
from tideline.contract.parking import FOLLOW_ALL, Policy, Stop, first_stop
from tideline.contract.plan import (
    Applied,
    Plan,
    PlanScope,
    TablePlan,
    decode_plan,
    encode_plan,
    start_of,
)
from tideline.contract.planning import make_plan
from tideline.contract.receipt import Receipt, decode_receipt
from tideline.contract.schema import TableSchema, parse_table
from tideline.planner.consumers import register_warehouse
from tideline.planner.gather import MANIFESTS_MAX, Gathered, Wanted, gather
from tideline.planner.kept import parts_lost, past_lost
from tideline.planner.past import Past
from tideline.planner.policies import policy_of
from tideline.planner.progress import foreign_owner, target_of
from tideline.planner.targets import Target
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store

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
    plan = Planning(settings, store).plan(plan_id, tables)
    register_warehouse(settings, store)
    if store.create(key, encode_plan(plan)):
        return plan
    raced = store.get(key)
    if raced is None:
        raise CorruptData(f"the plan at {key} vanished")
    return decode_plan(raced)


def preview_plan(settings: Settings, tables: Sequence[str] | None = None) -> Plan:
    """The plan that `plan_merge` would make now; nothing is stored. Raises as that does."""
    return Planning(settings, open_store(settings.store)).plan("preview", tables)


def read_receipt(settings: Settings, plan_id: str) -> Receipt | None:
    """The receipt of a plan; None while no run of it has written one."""
    raw = open_store(settings.store).get(layout.receipt_key(settings.pipeline, plan_id))
    return None if raw is None else decode_receipt(raw)


@dataclass(frozen=True, slots=True)
class _Start:
    """What is applied of a table, and the first manifest that a plan needs (None: none).

    ``stop``: the schema event that it stands before, and must not reach. ``counted``: it has no
    key; a copy of such a table is not cut.
    """

    applied: Applied
    first: int | None
    policy: Policy = FOLLOW_ALL
    stop: Stop | None = None
    counted: bool = False

    @property
    def waits(self) -> bool:
        return self.first is not None

    def wanted(self, table: TableState) -> Wanted:
        """What is to be read for the table."""
        applied = self.applied
        begins = max(applied.begin_seq, table.generation_seq) if applied.manifest is None else 0
        return Wanted(
            a=start_of(table, applied.manifest, applied.begin_manifest),
            begin_seq=begins,
            uncut=applied.went_back or applied.columns_seq > applied.seq or self.counted,
            before_seq=table.since_seq if table.condition is TableCondition.BLOCKED else None,
            policy=self.policy,
            stops_above=max(applied.seq, begins, applied.columns_seq),
        )

    def starved(self, b: int) -> bool:
        """Whether a plan that ends at ``b`` gives this table nothing although something waits."""
        return self.first is not None and self.first > b


class Planning:
    """One plan in the making. A table that is made new is made as rebuild ``build``; with
    ``since_dump`` it begins with the latest full dump, whatever its mode."""

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        *,
        build: int = 0,
        since_dump: bool = False,
    ) -> None:
        self._settings = settings
        self._store = store
        self._build = build
        self._since_dump = since_dump
        self._chain = Chain(store, settings.pipeline)
        self._past = Past(self._chain)

    def plan(self, plan_id: str, tables: Sequence[str] | None, until: int | None = None) -> Plan:
        """The plan of ``tables``, as if the chain ended with manifest ``until``."""
        settings = self._settings
        link = self._chain.tail() if until is None else self._chain.read(until)
        if link is None:
            raise Misconfigured(
                f"pipeline {settings.pipeline} has no manifest in {settings.store.url}",
                hint="start `tideline capture`, or correct store.url",
            )
        tail, state = link.manifest, self._chain.open_state(link)
        chosen = _chosen(state, tables)
        starts = self._starts(chosen, tail)
        stopped = {name: str(start.stop) for name, start in starts.items() if start.stop}
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
                policies={name: starts[name].policy for name in group if name in starts},
            )
            plan = self._group(scope, starts, state, tail)
            plans.append(plan)
            group = [name for name in group if name in starts and starts[name].starved(plan.b)]
        return msgspec.structs.replace(
            plans[0],
            b=plans[-1].b,
            tables=tuple(self._judged(table) for plan in plans for table in plan.tables),
            held={name: why for plan in plans for name, why in plan.held.items()} | stopped,
        )

    def stops(self) -> Mapping[str, Stop]:
        """The tables that stand before a change which somebody is to decide on."""
        link = self._chain.tail()
        state = OpenState() if link is None else self._chain.open_state(link)
        parking = {n: t for n, t in state.tables.items() if policy_of(self._settings, n).parks}
        if link is None or not parking:
            return {}
        starts = self._starts(parking, link.manifest)
        return {name: start.stop for name, start in starts.items() if start.stop is not None}

    def _judged(self, table: TablePlan) -> TablePlan:
        """With how soon the table's changes should be queryable; a rebuild's table, which nobody
        reads yet, is not measured."""
        if self._build:
            return table
        own = self._settings.of_table(parse_table(table.table)).slo_within_s
        within_s = self._settings.slo.within_s if own is None else own
        return msgspec.structs.replace(table, within_us=round(within_s * 1_000_000))

    def _group(
        self, scope: PlanScope, starts: Mapping[str, _Start], state: OpenState, tail: Manifest
    ) -> Plan:
        """The plan of the scope's tables, which share one ``b``."""
        names = set(scope.tables or ())
        firsts = [s.first for name, s in starts.items() if name in names and s.first is not None]
        first = min(firsts, default=tail.manifest_number)
        tables = {name: table for name, table in state.tables.items() if name in names}
        found = gather(
            self._chain,
            self._store.exists,
            {n: starts[n].wanted(tables[n]) for n in tables if n in starts and starts[n].waits},
            (first, tail.manifest_number),
            (scope.parts_max, scope.bytes_max),
        )
        return make_plan(
            scope,
            found.manifests,
            state=state,
            applied={name: start.applied for name, start in starts.items()},
            schemas=self._schemas(tables, found),
            tail=tail.manifest_number,
            blocks=found.blocks,
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
            name: self._start(name, tables[name], target, tail, earlier.tables.get(name))
            for name, target in targets.items()
        }

    def _start(
        self,
        name: str,
        table: TableState,
        target: Target,
        tail: Manifest,
        earlier: TableState | None,
    ) -> _Start:
        begin = None
        mode = self._mode(name, target)
        if target.applied is None:
            begin = self._past.full_dump(name, table, tail.manifest_number)
        if begin is not None and mode.keeps_past and not self._since_dump:
            lost = parts_lost(self._chain, self._store, name, table, begin.begin_manifest)
            if lost is not None:
                seq = begin.first_low_seq
                problem = past_lost(name, mode, lost, seq, rebuilding=self._build > 0)
                return _Start(Applied(exists=target.exists, problem=problem), None)
            begin = None
        a = start_of(table, target.applied, 0 if begin is None else begin.begin_manifest)
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
        last = table.last_data_manifest
        if tail.state_at is not None and (earlier is None or earlier.last_data_manifest <= a):
            clear_until = tail.state_at
        elif a < last:
            clear_until = self._past.clear_until(name, a, last)
        if self._stands_at_block(table, a):
            clear_until = tail.manifest_number
        applied = Applied(
            manifest=target.applied,
            seq=0 if a == 0 else self._past.manifest(a).last_seq,
            exists=target.exists,
            clear_until=clear_until,
            went_back=target.went_back,
            begin_manifest=0 if begin is None else begin.begin_manifest,
            begin_seq=0 if begin is None else begin.first_low_seq,
            columns_seq=target.columns_seq if target.applied is not None else 0,
            mode=mode,
            build=target.build if target.exists else self._build,
        )
        policy = policy_of(self._settings, name)
        stop = None
        if policy.parks and max(a, clear_until) < last:
            begins = table.generation_seq if target.applied is None else 0
            above = max(applied.seq, applied.begin_seq, applied.columns_seq, begins)
            stop = self._next_stop(name, policy, above, (max(a, clear_until), last))
        if stop is not None:
            clear_until = tail.manifest_number
            applied = msgspec.structs.replace(applied, clear_until=clear_until)
        moved = last > a and clear_until < tail.manifest_number
        counted = moved and self._is_counted(name, table)
        first = max(a, clear_until) + 1 if moved else None
        return _Start(applied, first, policy, stop, counted)

    def _is_counted(self, name: str, table: TableState) -> bool:
        """Whether the table has no key; looked up only where the settings allow for that."""
        if table.schema is None or self._settings.of_table(parse_table(name)).keyless == "refuse":
            return False
        return not self._chain.read_schema(table.schema).key

    def _next_stop(
        self, name: str, policy: Policy, above: int, within: tuple[int, int]
    ) -> Stop | None:
        """The event after sequence ``above`` that the table must not reach, if it is in the next
        manifest that holds anything of it; ``within`` are a manifest before that one, and one at or
        behind it."""
        for stretch in self._chain.stretches(within[0] + 1, within[1]):
            for link in stretch.links:
                if name in tables_in(link.manifest):
                    return first_stop([link.manifest], name, policy, above)
        return None

    def _mode(self, name: str, target: Target) -> Mode:
        """A target keeps the mode that it was made in; a new one has the mode of the settings."""
        if target.applied is not None:
            return target.mode
        return self._settings.of_table(parse_table(name)).mode

    def _stands_at_block(self, table: TableState, a: int) -> bool:
        """Whether the next manifest is the one that a blocked table stops before."""
        if table.condition is not TableCondition.BLOCKED or table.since_seq is None:
            return False
        following = self._chain.read(a + 1)
        return following is not None and following.manifest.last_seq >= table.since_seq

    def _earlier_state(self, tail: Manifest) -> OpenState:
        """The newest full open state behind the tail: what had data by then is known from it."""
        return OpenState() if tail.state_at is None else self._past.known(tail.state_at)[1]

    def _schemas(self, tables: Mapping[str, TableState], found: Gathered) -> dict[str, TableSchema]:
        wanted = {table.schema for table in tables.values()}
        for manifest in found.manifests:
            wanted |= {part.schema for part in manifest.parts if part.table in tables}
            for event in manifest.schema_events:
                if event.table in tables:
                    wanted |= {event.before, event.after}
        for block in found.blocks:
            wanted |= {file.schema for files in block.files.values() for file in files}
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
