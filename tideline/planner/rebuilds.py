"""Rebuilds: a table is made anew from the chain beside the live one, and takes its place.

Whoever rebuilds takes `next_step` after `next_step`, each a plan to be run, until there is none.
What the next one is follows from the two tables and the chain alone, so that a rebuild may be
killed anywhere, gone on with by anyone, and done by two at once.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.errors import Fenced, Misconfigured, Unavailable
from tideline.contract.keyless import NEEDS_KEY
from tideline.contract.manifest import Manifest, TableState
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan, PlannedSwap, app_id, encode_plan
from tideline.contract.rebuild import RebuildRecord, decode_rebuild, encode_rebuild
from tideline.contract.schema import parse_table
from tideline.planner.consumers import register_rebuild, strike_rebuild
from tideline.planner.merges import Planning
from tideline.planner.past import Past
from tideline.planner.progress import foreign_owner, target_of
from tideline.planner.targets import Target
from tideline.settings import Settings
from tideline.settings.tables import TableSettings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store


def begin_rebuild(
    settings: Settings,
    table: str,
    *,
    mode: Mode | None = None,
    since_dump: bool = False,
    anew: bool = False,
) -> RebuildRecord:
    """The rebuild of ``table`` that is under way, or a new one; ``mode`` None: the settings'.

    With ``anew`` one that is under way is given up. Raises Fenced when another one is under way or
    has just begun, and Misconfigured when nothing of the table can be rebuilt.
    """
    store = open_store(settings.store)
    now = _look(settings, store, table)
    wanted = settings.of_table(parse_table(table)).mode if mode is None else mode
    _check_key(store, settings.pipeline, now.state, wanted, table)
    newest = _newest(settings, store, table)
    open_now = newest is not None and newest.build > now.live.build and _fits(newest, now)
    if newest is not None and open_now and not anew:
        if (newest.mode, newest.since_dump) != (wanted, since_dump):
            raise Fenced(
                f"rebuild {newest.build} of {table} is under way, as {newest.mode.value}",
                hint=f"finish it with `tideline rebuild {table} --mode {newest.mode.value}"
                f"{' --since-dump' if newest.since_dump else ''}`, or give it up with --anew",
            )
        return newest
    record = RebuildRecord(
        table=table,
        build=1 + max(now.live.build, 0 if newest is None else newest.build),
        incarnation=now.tail.incarnation,
        generation=now.state.generation,
        mode=wanted,
        since_dump=since_dump,
        begun_us=time.time_ns() // 1_000,
    )
    key = layout.rebuild_key(settings.pipeline, parse_table(table), record.build)
    if not store.create(key, encode_rebuild(record)):
        raise Fenced(
            f"another rebuild of {table} has begun, as number {record.build}",
            hint="the same command joins it",
        )
    return record


def next_step(
    settings: Settings,
    record: RebuildRecord,
    *,
    plan_id: str | None = None,
    accept_differences: bool = False,
) -> Plan | None:
    """The stored plan to run next; None when the rebuilt table is the live one.

    With ``accept_differences`` it takes the live one's place even where it is another.
    A plan that holds the table back says why, and is not stored. Raises Fenced when a newer rebuild
    has begun, Unavailable when the source began another generation since: begin again.
    """
    store = open_store(settings.store)
    now = _look(settings, store, record.table)
    newest = _newest(settings, store, record.table)
    if newest is not None and newest.build > record.build:
        raise Fenced(f"rebuild {newest.build} of {record.table} took over from {record.build}")
    if now.live.build >= record.build:
        strike_rebuild(settings, store, record)
        return None
    if not _fits(record, now):
        raise Unavailable(
            f"{record.table} began generation {now.state.generation} since rebuild {record.build}",
            hint=f"run `tideline rebuild {record.table}` again: it begins anew",
        )
    register_rebuild(settings, store, record)
    plan = _step(settings, store, record, now, plan_id or f"rebuild-{uuid.uuid4().hex}")
    if accept_differences:
        accepted = tuple(replace(swap, accept_differences=True) for swap in plan.swaps)
        plan = replace(plan, swaps=accepted)
    if not plan.held and not store.create(
        layout.plan_key(settings.pipeline, plan.plan_id), encode_plan(plan)
    ):
        raise Unavailable(f"a plan {plan.plan_id} exists already", hint="try again")
    return plan


def _check_key(
    store: ObjectStore, pipeline: str, state: TableState, mode: Mode, table: str
) -> None:
    """Before there is a record of a rebuild that could only be given up."""
    keyless = state.schema is not None and not Chain(store, pipeline).read_schema(state.schema).key
    if keyless and mode in (Mode.SOFT_DELETES, Mode.HISTORY):
        raise Misconfigured(
            f"{table} cannot be rebuilt: {NEEDS_KEY.format(mode=mode.value)}",
            hint="docs/KEYLESS.md says how a table gets a key",
        )


@dataclass(frozen=True, slots=True)
class _Now:
    """The table at the chain's tail, and the live target, which has something applied."""

    tail: Manifest
    state: TableState
    live: Target
    applied: int


def _look(settings: Settings, store: ObjectStore, table: str) -> _Now:
    chain = Chain(store, settings.pipeline)
    link = chain.tail()
    state = None if link is None else chain.open_state(link).tables.get(table)
    if link is None or state is None or state.schema is None:
        raise Misconfigured(
            f"the chain of this pipeline has no table {table}",
            hint="`tideline status` lists the tables; a new one appears once it is captured",
        )
    live = target_of(settings, link.manifest, table, state)
    foreign = foreign_owner(live, link.manifest, table)
    if foreign is not None:
        raise Misconfigured(foreign, hint="name another warehouse.url")
    if live.applied is None:
        raise Misconfigured(
            f"{table} has no warehouse table of its generation yet: nothing is to be rebuilt",
            hint="run `tideline merge`",
        )
    return _Now(link.manifest, state, live, live.applied)


def _fits(record: RebuildRecord, now: _Now) -> bool:
    same = record.incarnation == now.tail.incarnation
    return same and record.generation == now.state.generation


def _newest(settings: Settings, store: ObjectStore, table: str) -> RebuildRecord | None:
    keys = store.list(layout.rebuilds_prefix(settings.pipeline, parse_table(table)))
    raw = store.get(max(keys)) if keys else None
    return None if raw is None else decode_rebuild(raw)


def _step(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: _Now, plan_id: str
) -> Plan:
    """Bring the table beside to where the live one stands, or, when it is there, swap them."""
    beside = settings_beside(settings, record)
    planning = Planning(beside, store, build=record.build, since_dump=record.since_dump)
    made = target_of(beside, now.tail, record.table, now.state)
    plan = planning.plan(plan_id, [record.table], now.applied)
    if plan.tables or plan.held:
        return plan
    if made.applied is None:
        raise Unavailable(f"nothing of {record.table} is in the chain up to {now.applied}")
    return _swap(settings, store, record, now, made, plan)


def _swap(
    settings: Settings,
    store: ObjectStore,
    record: RebuildRecord,
    now: _Now,
    made: Target,
    empty: Plan,
) -> Plan:
    chain = Chain(store, settings.pipeline)
    past = Past(chain)
    link = chain.read(now.applied)
    then = None if link is None else chain.open_state(link).tables.get(record.table)
    if link is None or then is None or then.schema is None:
        raise Unavailable(f"manifest {now.applied} does not know {record.table}")
    dump = past.full_dump(record.table, then, now.applied)
    name = parse_table(record.table)
    base = (now.tail.pipeline, now.tail.incarnation, record.table, record.generation)
    swap = PlannedSwap(
        table=record.table,
        target=now.live.url,
        beside=made.url,
        schema=chain.read_schema(then.schema),
        b=now.applied,
        b_seq=link.manifest.last_seq,
        app_id=app_id(*base, record.build),
        live_app_id=app_id(*base, now.live.build),
        build=record.build,
        live_build=now.live.build,
        mode=record.mode,
        live_mode=now.live.mode,
        floor=None if dump is None else dump.first_low_seq,
        superseded=tuple(
            layout.table_path(layout.beside_url(settings.warehouse.url, build), name)
            for build in range(now.live.build + 1, record.build)
        ),
    )
    return replace(empty, swaps=(swap,))


def settings_beside(settings: Settings, record: RebuildRecord) -> Settings:
    """The settings under which the rebuild's table is made: elsewhere, and in its mode."""
    url = layout.beside_url(settings.warehouse.url, record.build)
    pattern = "*.*"
    while pattern in settings.tables:
        pattern += "*"
    return settings.model_copy(
        update={
            "warehouse": settings.warehouse.model_copy(update={"url": url}),
            "tables": {**settings.tables, pattern: TableSettings(mode=record.mode)},
        }
    )
