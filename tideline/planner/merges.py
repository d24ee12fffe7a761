"""Gathers the input of a merge plan, and stores the plan before anyone runs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from tideline.contract import layout
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import Plan, PlanScope, TablePlan, decode_plan, encode_plan
from tideline.contract.planning.maker import make_plan
from tideline.contract.planning.stops import Stop
from tideline.contract.receipt import Receipt, decode_receipt
from tideline.contract.schema import TableSchema, parse_table
from tideline.planner.consumers import register_warehouse
from tideline.planner.descriptions import descriptions
from tideline.planner.policies import policy_of
from tideline.planner.read_inputs import ReadInputs, read_inputs
from tideline.planner.start_points import Start, StartPoints
from tideline.planner.stored import chosen, existing, read_stored, store_once
from tideline.planner.verified import settled_tables
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store

GROUPS_MAX = 4
"""Tables far behind (new, or failing) fill a plan's caps; those ahead of them are planned apart,
so that one table's backlog does not hold up the others."""


def plan_merge(settings: Settings, *, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
    """Return the stored plan of ``plan_id``, made now if there is none: all tables, or those named.

    A plan without tables says that nothing waits; one with ``to_manifest`` below ``tail`` that
    more waits after it. Raises Misconfigured for a pipeline without a manifest, for a table that
    the chain does not know, and, naming all of them, for targets that belong to another history.
    """
    store = open_store(settings.store)
    key = layout.plan_key(settings.pipeline, plan_id)
    stored = read_stored(store, key, decode_plan)
    if stored is not None:
        return stored
    planning = Planning(settings, store)
    plan = planning.plan(plan_id, tables)
    register_warehouse(settings, store, planning.ended)
    return store_once(store, key, plan, encode_plan, decode_plan)


def preview_plan(settings: Settings, tables: Sequence[str] | None = None) -> Plan:
    """Make the plan that `plan_merge` would make now; nothing is stored. Raises as that does."""
    return Planning(settings, open_store(settings.store)).plan("preview", tables)


def read_receipt(settings: Settings, plan_id: str) -> Receipt | None:
    """Read the receipt of a plan; None while no run of it has written one."""
    key = layout.receipt_key(settings.pipeline, plan_id)
    return read_stored(open_store(settings.store), key, decode_receipt)


class Planning:
    """Makes plans. A new target is made as rebuild ``build``; with ``since_dump`` it begins with
    the latest full dump, whatever its mode. ``at``: the url of the plan's one target, which is not
    the one in use.

    May make several plans, one after the other: what is kept in between (manifests, schemas, where
    dumps began) does not change in a chain, and jobs refuse a plan whose chain was replaced.
    """

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        *,
        build: int = 0,
        since_dump: bool = False,
        chain: Chain | None = None,
        at: str | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._build = build
        self._chain = chain or Chain(store, settings.pipeline)
        self._start_points = StartPoints(
            settings, store, self._chain, build=build, since_dump=since_dump, at=at
        )
        self.ended: Mapping[str, int] = {}
        """The tables of the last plan that the source no longer has, and whose targets have applied
        everything, with their generations."""

    def plan(self, plan_id: str, tables: Sequence[str] | None, until: int | None = None) -> Plan:
        """Make the plan of ``tables``, as if the chain ended with manifest ``until``."""
        found = self._chain.tail() if until is None else self._chain.read(until)
        entry = existing(self._settings, found)
        state = self._chain.open_state(entry)
        return self.plan_at(plan_id, entry.manifest, state, chosen(state, tables), tables or ())

    def plan_at(
        self,
        plan_id: str,
        tail: Manifest,
        state: OpenState,
        wanted: Mapping[str, TableState],
        named: Collection[str] = (),
    ) -> Plan:
        """Make the plan of the ``wanted`` tables at the chain's ``tail``, where the open state is
        ``state``. ``named``: those that were asked for by name."""
        settings = self._settings
        start_points = self._start_points.of(wanted, tail, named)
        self.ended = _ended(wanted, start_points)
        stopped = {name: str(start.stop) for name, start in start_points.items() if start.stop}
        settled = self._settled(tail, state, wanted)
        plans: list[Plan] = []
        group: Sequence[str] = tuple(wanted)
        # A chain without a table gives one plan, which is empty.
        while not plans or (group and len(plans) < GROUPS_MAX):
            scope = PlanScope(
                plan_id=plan_id,
                store_url=settings.store.url,
                warehouse_url=settings.warehouse.url,
                parts_max=settings.merge.parts_max,
                bytes_max=settings.merge.bytes_max,
                tables=tuple(group),
                policies={
                    name: start_points[name].policy for name in group if name in start_points
                },
                targets={name: start_points[name].url for name in group if name in start_points},
            )
            plan = self._group(scope, start_points, settled, tail)
            plans.append(plan)
            group = [
                name
                for name in group
                if name in start_points and start_points[name].starved(plan.to_manifest)
            ]
        merged = [self._judged(table) for plan in plans for table in plan.tables]
        return msgspec.structs.replace(
            plans[0],
            to_manifest=plans[-1].to_manifest,
            tables=tuple(merged),
            descriptions=tuple(
                descriptions(self._chain, wanted, self._start_points, start_points, merged)
            ),
            delayed={name: why for plan in plans for name, why in plan.delayed.items()} | stopped,
            strayed=tuple(dict.fromkeys(name for plan in plans for name in plan.strayed)),
        )

    def _settled(self, tail: Manifest, state: OpenState, wanted: Collection[str]) -> OpenState:
        """Return the state without the doubts of ``wanted`` tables that verifications ended; one is
        of the live table, and says nothing about a shadow table."""
        if self._build:
            return state
        return settled_tables(self._settings, self._store, tail, state, wanted)

    def stops(self, tables: Collection[str], laid_out: Collection[str] = ()) -> Mapping[str, Stop]:
        """Return those of ``tables`` that stand before a change which an operator is to decide
        on. ``laid_out``: those whose targets have a layout, which can stop them."""
        entry = self._chain.tail()
        state = OpenState() if entry is None else self._chain.open_state(entry)
        stopping = {
            name: table
            for name, table in state.tables.items()
            if name in tables and (name in laid_out or self._may_stop(name))
        }
        if entry is None or not stopping:
            return {}
        start_points = self._start_points.of(stopping, entry.manifest)
        return {name: start.stop for name, start in start_points.items() if start.stop is not None}

    def _may_stop(self, name: str) -> bool:
        """Return whether the table's settings can stop it."""
        own = self._settings.of_table(parse_table(name))
        return bool(own.readers) or policy_of(self._settings, name).stops

    def _judged(self, table: TablePlan) -> TablePlan:
        """Add how soon the table's changes should be queryable; a rebuild's table, which no one
        reads yet, is not measured."""
        if self._build:
            return table
        own = self._settings.of_table(parse_table(table.table)).slo_within_s
        within_s = self._settings.slo.within_s if own is None else own
        return msgspec.structs.replace(table, within_us=round(within_s * 1_000_000))

    def _group(
        self, scope: PlanScope, start_points: Mapping[str, Start], state: OpenState, tail: Manifest
    ) -> Plan:
        """Make the plan of the scope's tables, which share one end."""
        names = set(scope.tables or ())
        firsts = [
            s.first for name, s in start_points.items() if name in names and s.first is not None
        ]
        first = min(firsts, default=tail.manifest_number)
        tables = {name: table for name, table in state.tables.items() if name in names}
        found = read_inputs(
            self._chain,
            self._store.exists,
            {
                n: start_points[n].wanted(tables[n])
                for n in tables
                if n in start_points and start_points[n].waits
            },
            (first, tail.manifest_number),
            (scope.parts_max, scope.bytes_max),
        )
        plan = make_plan(
            scope,
            found.manifests,
            state=state,
            applied={name: start.applied for name, start in start_points.items()},
            schemas=self._schemas(tables, found),
            tail=tail.manifest_number,
            blocks=found.blocks,
        )
        known = [
            msgspec.structs.replace(table, to_digest=found.digests[table.to_manifest])
            for table in plan.tables
        ]
        return msgspec.structs.replace(plan, tables=tuple(known))

    def _schemas(
        self, tables: Mapping[str, TableState], found: ReadInputs
    ) -> dict[str, TableSchema]:
        wanted = {table.schema for table in tables.values()}
        for manifest in found.manifests:
            wanted |= {part.schema for part in manifest.parts if part.table in tables}
            for event in manifest.schema_events:
                if event.table in tables:
                    wanted |= {event.before, event.after}
        for block in found.blocks:
            wanted |= {file.schema for files in block.files.values() for file in files}
        return {name: self._start_points.schema(name) for name in sorted(filter(None, wanted))}


def _ended(tables: Mapping[str, TableState], start_points: Mapping[str, Start]) -> dict[str, int]:
    """Return the tables that the source no longer has and whose targets have applied everything, by
    generation."""
    found = {}
    for name, start in start_points.items():
        table, applied = tables[name], start.applied
        whole = applied.manifest is not None and applied.manifest >= table.last_data_manifest
        if table.removed and whole and applied.problem is None and not applied.went_back:
            found[name] = table.generation
    return found
