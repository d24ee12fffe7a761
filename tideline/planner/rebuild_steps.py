"""Finds a rebuild's next step: bring the shadow table to where the live one stands, then swap them.

They cannot meet at a live table that cannot continue: one that stands before a change which it does
not take, or is of an older generation and keeps a past that must not be lost by accident. It gives
way, without comparison, to a shadow table that begins behind what it holds, once the full dump that
the shadow table begins with is whole. So does one that has applied another chain, near the tail of
this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.modes import Mode
from tideline.contract.open_state import TableState
from tideline.contract.plan import Plan, PlannedSwap, app_id
from tideline.contract.planning.stops import first_stop
from tideline.contract.printable import command
from tideline.contract.readers import lacking
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.schema import parse_table
from tideline.contract.target_url import table_format_of
from tideline.planner.applied_chain import strayed
from tideline.planner.chain_index import ChainIndex, FullDump
from tideline.planner.consumers import made_at
from tideline.planner.merges import Planning
from tideline.planner.policies import policy_of
from tideline.planner.stored import no_such_table
from tideline.planner.targets import not_in_use, other_owner, target_at, target_of
from tideline.settings import Settings
from tideline.settings.tables import TableSettings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.warehouse.state import TargetState

NEAR = 1_000
"""Manifests that a rebuilt table may lack when it takes the place of one that has applied another
chain; merges bring them."""


@dataclass(frozen=True, slots=True)
class Now:
    """The table at the chain's tail, and the live target, which has ``applied`` something, of the
    ``generation`` that it is of; ``other_chain``: not of this one."""

    tail: Manifest
    state: TableState
    live: TargetState
    applied: int
    generation: int
    other_chain: bool = False


def look(settings: Settings, store: ObjectStore, table: str) -> Now:
    """Read the state of the table. Misconfigured where there is nothing to be rebuilt."""
    chain = Chain(store, settings.pipeline)
    entry = chain.tail()
    state = None if entry is None else chain.open_state(entry).tables.get(table)
    if entry is None or state is None or state.schema is None:
        raise no_such_table(table)
    newest = target_of(settings, entry.manifest, table, state).newer or state.generation
    for generation in range(newest, -1, -1):
        then = replace(state, generation=generation)
        live = target_of(settings, entry.manifest, table, then)
        owner = other_owner(live, entry.manifest, table)
        if owner is not None:
            raise Misconfigured(owner, hint="name another warehouse.url")
        away = not_in_use(live, table)
        if away is not None:
            raise Misconfigured(away)
        if live.applied is not None:
            other = generation > state.generation
            other_chain = other or bool(strayed(ChainIndex(chain), entry.manifest, table, live))
            return Now(entry.manifest, state, live, live.applied, generation, other_chain)
        if not live.exists:
            break
    raise Misconfigured(
        f"{table} has no warehouse table yet: nothing is to be rebuilt",
        hint="run `tideline merge`",
    )


def step(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now, plan_id: str
) -> Plan:
    """Make the plan of the next step. Raises Unavailable where it has to wait for something."""
    shadow, url = shadow_settings(settings, record), made_at(settings, record)
    made = target_at(settings, now.tail, record.table, now.state, url)
    if now.other_chain:
        until = _caught_up(record, now, made)
    else:
        dump = _gives_way_to(settings, store, record, now)
        until = now.applied if dump is None else max(dump.finished_in, made.applied or 0)
    if made.applied is not None and made.applied > until:
        raise Unavailable(
            f"the shadow table of {record.table} is built up to manifest {made.applied}, the live"
            " one"
            f" stands at {now.applied} and can go on by now",
            hint=f"run {command('merge', record.table)}, then this again; --restart begins it"
            " once more",
        )
    planning = Planning(shadow, store, build=record.build, since_dump=record.since_dump, at=url)
    plan = planning.plan(plan_id, [record.table], until)
    if plan.tables or plan.delayed:
        return plan
    if made.applied is None:
        raise Unavailable(f"nothing of {record.table} is in the chain up to {until}")
    return _swap(settings, store, record, now, made, replace(plan, to_manifest=until))


def _caught_up(record: RebuildRecord, now: Now, made: TargetState) -> int:
    """Return where the shadow table takes the place of a live one that has applied another chain:
    near the tail, which may advance faster than tables are built."""
    if now.state.complete_seq is None:
        raise Unavailable(
            f"no dump of all of {record.table} has ended yet",
            hint=f"run {command('dump', record.table)} if none is under way, and this again when it"
            " has ended",
        )
    tail = now.tail.manifest_number
    near = made.applied is not None and 0 <= tail - made.applied < NEAR
    return made.applied if near and made.applied is not None else tail


def _gives_way_to(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now
) -> FullDump | None:
    """Return the full dump behind what the live table cannot pass; None where it can continue, or
    where the rebuild would begin before that as well."""
    chain = Chain(store, settings.pipeline)
    dump = ChainIndex(chain).full_dump(record.table, now.state, now.tail.manifest_number)
    if now.generation < now.state.generation:
        if dump is None:
            raise Unavailable(
                f"no dump of generation {now.state.generation} of {record.table} has ended yet",
                hint=f"run {command('dump', record.table)}, and this again when that has ended",
            )
        return dump
    if dump is None or (record.mode.keeps_history and not record.since_dump):
        return None
    policy = policy_of(settings, record.table, now.live)
    if not policy.stops or dump.begin_manifest < now.applied:
        return None
    at = chain.read(now.applied)
    above = max(now.live.columns_seq, 0 if at is None else at.manifest.last_seq)
    entries = chain.entries(now.applied + 1, dump.finished_in)
    stop = first_stop((entry.manifest for entry in entries), record.table, policy, above)
    return dump if stop is not None and stop.seq <= dump.first_low_seq else None


def _swap(
    settings: Settings,
    store: ObjectStore,
    record: RebuildRecord,
    now: Now,
    made: TargetState,
    empty: Plan,
) -> Plan:
    """Make the plan that swaps the two tables at the manifest that ``empty``, which has no tables,
    ends at."""
    chain = Chain(store, settings.pipeline)
    entry = chain.read(empty.to_manifest)
    then = None if entry is None else chain.open_state(entry).tables.get(record.table)
    if entry is None or then is None or then.schema is None:
        raise Unavailable(f"manifest {empty.to_manifest} does not know {record.table}")
    dump = ChainIndex(chain).full_dump(record.table, then, empty.to_manifest)
    name = parse_table(record.table)
    wanted = settings.of_table(name)
    base = (now.tail.pipeline, now.tail.incarnation, record.table)
    there = now.applied == empty.to_manifest and now.generation == record.generation
    meets = there and not now.other_chain
    swap = PlannedSwap(
        table=record.table,
        target=now.live.url,
        shadow=made.url,
        schema=chain.read_schema(then.schema),
        to_manifest=empty.to_manifest,
        to_seq=entry.manifest.last_seq,
        to_digest=entry.digest,
        app_id=app_id(*base, record.generation, record.build),
        live_app_id=app_id(*base, now.generation, now.live.build),
        build=record.build,
        live_build=now.live.build,
        mode=record.mode,
        live_mode=now.live.mode,
        delete_before=None if dump is None else dump.first_low_seq,
        # The live table's own among them: a run that was killed behind its swap has left it.
        superseded=shadows_left(settings, record, now),
        live_to_manifest=None if meets else now.applied,
        without=tuple(lacking(wanted.readers, partitioned=made.layout.partitioned(record.mode))),
    )
    # The shadow table's description goes into the live one's place with its rows.
    return replace(empty, swaps=(swap,), descriptions=())


def shadows_left(settings: Settings, record: RebuildRecord, now: Now) -> tuple[str, ...]:
    """Return where abandoned rebuilds may have left shadow tables. They are of the live table's
    format."""
    name, kind = parse_table(record.table), table_format_of(now.live.url)
    return tuple(
        settings.of_rebuild(build).target_url(name, kind)
        for build in range(max(1, now.live.build), record.build)
    )


def shadow_settings(settings: Settings, record: RebuildRecord) -> Settings:
    """Return the settings under which the shadow table is made: elsewhere, and in its mode."""
    return in_mode(settings.of_rebuild(record.build), record.mode)


def in_mode(settings: Settings, mode: Mode) -> Settings:
    """Return the settings with ``mode`` for every table."""
    pattern = "*.*"
    while pattern in settings.tables:
        pattern += "*"
    tables = {**settings.tables, pattern: TableSettings(mode=mode)}
    return settings.model_copy(update={"tables": tables})
