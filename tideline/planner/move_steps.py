"""Finds a move's next step: copy the live table, have the copy follow the chain, take over.

The copy has the live table's rows and applied number, so nothing is read from the source, and what
no part holds any more (old versions, the log of changes) comes along. It follows by the merges of
any target, at its own url, until it has applied what the live table has.
"""

from __future__ import annotations

from dataclasses import replace as with_fields

from msgspec.structs import replace

from tideline.contract.errors import InvariantBroken, Misconfigured, Unavailable
from tideline.contract.moves import MOVES, PlannedMove
from tideline.contract.plan import Plan, app_id
from tideline.contract.printable import command
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.schema import parse_table
from tideline.contract.target_url import table_format_of
from tideline.planner.consumers import made_at
from tideline.planner.layouts import limited, unmakeable
from tideline.planner.merges import Planning
from tideline.planner.rebuild_steps import Now, in_mode, shadows_left
from tideline.planner.targets import other_owner, target_at
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.warehouse.state import TargetState


def check_move(settings: Settings, store: ObjectStore, table: str, now: Now, to: str) -> str:
    """Return the url that ``table`` is to have in the format ``to``, before there is a record of
    it. Raises Misconfigured where there is no place for it, or it cannot be made there."""
    if to not in settings.formats_held:
        raise Misconfigured(
            f"there is no place for a table of the format {to}",
            hint=f"formats here: {', '.join(sorted(settings.formats_held))}; docs/MODES.md"
            " names the settings that each needs",
        )
    if table_format_of(now.live.url) == to:
        raise Misconfigured(f"{table} has the format {to} already, at {now.live.url}")
    if now.other_chain or now.generation != now.state.generation:
        raise Misconfigured(
            f"{table} cannot go on from where it stands, and so could no copy of it",
            hint=f"run {command('rebuild', table)} first",
        )
    url = settings.target_url(parse_table(table), to)
    own, new = settings.of_table(parse_table(table)), TargetState(url)
    if limited(own, new):
        schema = Chain(store, settings.pipeline).read_schema(now.state.schema or "")
        problem = unmakeable(schema, own, now.live.mode, new)
        if problem is not None:
            raise Misconfigured(f"{table} cannot be moved: {problem}", hint="docs/LAYOUT.md")
    _check_free(target_at(settings, now.tail, table, now.state, url), now, table)
    return url


def _check_free(there: TargetState, now: Now, table: str) -> None:
    """Raise Misconfigured where a table lies at the new url."""
    if not there.exists:
        return
    owner = other_owner(there, now.tail, table)
    if owner is not None:
        raise Misconfigured(owner, hint="move or remove it, or name another place")
    what = "a copy of it that a move given up has left"
    if there.moved_to:
        what = "what it was before it was moved"
    elif there.in_use:
        what = "another table of it"
    raise Misconfigured(
        f"{table} cannot be moved to {there.url}: {what} lies there",
        hint=f"{command('delete-former', table)} shows it, and removes it with --yes",
    )


def move_step(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now, plan_id: str
) -> Plan:
    """Make the plan of the next step. Raises Unavailable where it has to wait for something, and
    Misconfigured where it cannot go on."""
    url = made_at(settings, record)
    made = target_at(settings, now.tail, record.table, now.state, url)
    if now.other_chain or now.generation != now.state.generation or now.live.went_back:
        raise Misconfigured(
            f"{record.table} cannot go on from where it stands, and so could no copy of it",
            hint=f"run {command('rebuild', record.table)} first",
        )
    planning = Planning(in_mode(settings, record.mode), store, build=record.build, at=url)
    if not made.exists:
        move = _move(settings, store, record, now, copy=True)
        return _with_move(_empty(settings, now, plan_id), move)
    if made.build != record.build or not made.moving or made.applied is None:
        _check_free(made, now, record.table)
    if made.applied is not None and made.applied > now.applied:
        raise Unavailable(
            f"the copy of {record.table} has applied manifest {made.applied}, and the table itself"
            f" {now.applied}: it was set back",
            hint=f"run {command('merge', record.table)}, then this again",
        )
    plan = planning.plan(plan_id, [record.table], now.applied)
    if plan.tables or plan.delayed:
        return plan
    return _with_move(plan, _move(settings, store, record, now, copy=False))


def last_step(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now, plan_id: str
) -> Plan | None:
    """Return the plan that rids the new table, which has taken over, of its mark; None where it has
    none."""
    if not (record.to and now.live.moving and now.live.build == record.build):
        return None
    before = with_fields(now, live=with_fields(now.live, url=now.live.moving, build=0))
    move = _move(settings, store, record, before, copy=False)
    return _with_move(_empty(settings, now, plan_id), move)


def _empty(settings: Settings, now: Now, plan_id: str) -> Plan:
    tail = now.tail
    place, number = settings.store.url, tail.manifest_number
    return Plan(plan_id, tail.pipeline, tail.incarnation, place, now.applied, (), tail=number)


def _with_move(plan: Plan, move: PlannedMove) -> Plan:
    changed = {"to_manifest": move.to_manifest, "moves": (move,), "descriptions": ()}
    return replace(plan, **changed, requires=(MOVES,))


def _move(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now, *, copy: bool
) -> PlannedMove:
    """Make the move's step at the manifest that the live table has applied."""
    chain = Chain(store, settings.pipeline)
    entry = chain.read(now.applied)
    if entry is None:
        raise InvariantBroken(f"manifest {now.applied} is gone")
    then = chain.open_state(entry).tables.get(record.table)
    if then is None or then.schema is None:
        raise Unavailable(f"manifest {now.applied} does not know {record.table}")
    wanted = settings.of_table(parse_table(record.table))
    base = (now.tail.pipeline, now.tail.incarnation, record.table)
    return PlannedMove(
        table=record.table,
        source=now.live.url,
        target=made_at(settings, record),
        schema=chain.read_schema(then.schema),
        to_manifest=now.applied,
        to_seq=entry.manifest.last_seq,
        app_id=app_id(*base, record.generation, record.build),
        live_app_id=app_id(*base, now.generation, now.live.build),
        build=record.build,
        live_build=now.live.build,
        mode=record.mode,
        copy=copy,
        columns_seq=now.live.columns_seq,
        layout=wanted.layout,
        deletion_vectors=wanted.vectors,
        superseded=shadows_left(settings, record, now),
        to_digest=entry.digest,
    )
