"""Rebuilds: a shadow table is made from the chain, and takes the live table's place.

The caller takes `next_step` after `next_step`, each a plan to be run, until there is none. The next
one follows from the two tables and the chain alone, so a rebuild may be killed anywhere, continued
by another process, and run by two at once.
"""

from __future__ import annotations

import time
import uuid

from msgspec.structs import replace

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.errors import Fenced, Misconfigured, TidelineError, Unavailable
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVES
from tideline.contract.open_state import TableState
from tideline.contract.plan import Plan, encode_plan
from tideline.contract.planning.keyless import NEEDS_KEY
from tideline.contract.printable import command
from tideline.contract.rebuild import RebuildRecord, decode_rebuild, encode_rebuild
from tideline.contract.schema import parse_table
from tideline.contract.target_url import table_format_of
from tideline.planner.consumers import made_at, register_rebuild, strike_rebuild
from tideline.planner.layouts import limited, unmakeable
from tideline.planner.move_steps import check_move, last_step, move_step
from tideline.planner.rebuild_steps import Now, look, step
from tideline.planner.stored import read_stored
from tideline.planner.targets import target_at
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store


def begin_rebuild(
    settings: Settings,
    table: str,
    *,
    mode: Mode | None = None,
    since_dump: bool = False,
    restart: bool = False,
    asked: str = "",
    to: str = "",
) -> RebuildRecord:
    """Return the rebuild of ``table`` that is under way, or a new one; ``mode`` None: the
    settings'. ``to``: the table format to move it to, in the mode that it has; a move that is done
    is returned again.

    With ``restart`` one that is under way is given up. The newest one, if it was ``asked`` for by
    this name, is joined in any case, even if it is done. Raises Fenced when another one is under
    way or has just begun, and Misconfigured when nothing of the table can be rebuilt.
    """
    store = open_store(settings.store)
    now = look(settings, store, table)
    wanted = _checked_mode(settings, store, table, now, mode, since_dump=since_dump, to=to)
    newest = _newest(settings, store, table)
    if newest is not None and asked and newest.asked == asked and _fits(newest, now):
        return newest
    open_now = newest is not None and newest.build > now.live.build and _fits(newest, now)
    if newest is not None and open_now and not restart:
        _check_same(newest, table, (wanted, since_dump, to))
        if not to:
            _check_layout_begun(settings, newest, now)
        return newest
    if newest is not None and to and (newest.to, newest.build) == (to, now.live.build):
        return newest
    build = 1 + max(now.live.build, 0 if newest is None else newest.build)
    if to:
        target = check_move(settings, store, table, now, to)
    else:
        kind = table_format_of(now.live.url)
        target = settings.of_rebuild(build).target_url(parse_table(table), kind)
    record = RebuildRecord(
        table=table,
        build=build,
        incarnation=now.tail.incarnation,
        generation=now.state.generation,
        mode=wanted,
        since_dump=since_dump,
        begun_us=time.time_ns() // 1_000,
        asked=asked,
        requires=(MOVES,) if to else (),
        target=target,
        to=to,
    )
    key = layout.rebuild_key(settings.pipeline, parse_table(table), record.build)
    if not store.create(key, with_checksum(encode_rebuild(record))):
        raise Fenced(
            f"another rebuild of {table} has begun, as number {record.build}",
            hint="the same command joins it",
        )
    return record


def next_step(
    settings: Settings,
    record: RebuildRecord,
    *,
    accept_differences: bool = False,
) -> Plan | None:
    """Return the stored plan to run next; None when the rebuilt table is the live one.

    With ``accept_differences`` it takes the live one's place even where they differ. A plan that
    delays the table says why, and is not stored. Raises Fenced when a newer rebuild has begun,
    Unavailable when the source began another generation since: begin again.

    From here on the rebuild is on record as a consumer of parts, unless this is its end, or nothing
    is built yet and nothing can be.
    """
    store = open_store(settings.store)
    # Before anything is read: another process that takes over, or has swapped, in the meantime is
    # seen then.
    register_rebuild(settings, store, record)
    try:
        now = look(settings, store, record.table)
        plan = _planned(settings, store, record, now, f"rebuild-{uuid.uuid4().hex}")
    except Fenced:
        raise
    except TidelineError:
        strike_rebuild(settings, store, record, unless_built=True)
        raise
    if plan is None:
        strike_rebuild(settings, store, record)
        return None
    if plan.delayed:
        strike_rebuild(settings, store, record, unless_built=True)
        return plan
    if accept_differences:
        accepted = tuple(replace(swap, accept_differences=True) for swap in plan.swaps)
        moves = tuple(replace(move, accept_differences=True) for move in plan.moves)
        plan = replace(plan, swaps=accepted, moves=moves)
    key = layout.plan_key(settings.pipeline, plan.plan_id)
    if not store.create(key, with_checksum(encode_plan(plan))):
        raise Unavailable(f"a plan {plan.plan_id} exists already", hint="try again")
    return plan


def _planned(
    settings: Settings, store: ObjectStore, record: RebuildRecord, now: Now, plan_id: str
) -> Plan | None:
    """Return the step to take now; None at the end."""
    newest = _newest(settings, store, record.table)
    if newest is not None and newest.build > record.build:
        # A table has one place on record, which is the newer one's.
        over = now.live.build >= newest.build or not _fits(newest, now)
        (strike_rebuild if over else register_rebuild)(settings, store, newest)
        raise Fenced(f"rebuild {newest.build} of {record.table} took over from {record.build}")
    if now.live.build >= record.build:
        return last_step(settings, store, record, now, plan_id)
    if not _fits(record, now):
        strike_rebuild(settings, store, record)
        raise Unavailable(
            f"{record.table} began generation {now.state.generation} since rebuild {record.build}",
            hint=f"run {command('rebuild', record.table)} again: it begins a new rebuild",
        )
    return (move_step if record.to else step)(settings, store, record, now, plan_id)


def _checked_mode(
    settings: Settings,
    store: ObjectStore,
    table: str,
    now: Now,
    mode: Mode | None,
    *,
    since_dump: bool,
    to: str,
) -> Mode:
    """Return the mode that the table is to be kept in; Misconfigured where that cannot be."""
    if not to:
        wanted = settings.of_table(parse_table(table)).mode if mode is None else mode
        _check_layout(store, settings, now, wanted, table)
        _check_key(store, settings.pipeline, now.state, wanted, table)
        return wanted
    if mode not in (None, now.live.mode) or since_dump:
        raise Misconfigured(
            f"{table} is moved as it is kept, as {now.live.mode.value}, with all that it holds",
            hint="leave out --mode and --since-dump, and rebuild it before or afterwards",
        )
    return now.live.mode


def _check_same(newest: RebuildRecord, table: str, wanted: tuple[Mode, bool, str]) -> None:
    """Raise Fenced where the rebuild that is under way is another one than is wanted."""
    if (newest.mode, newest.since_dump, newest.to) == wanted:
        return
    switches = ["--to", newest.to] if newest.to else ["--mode", newest.mode.value]
    switches += ["--since-dump"] * newest.since_dump
    raise Fenced(
        f"rebuild {newest.build} of {table} is under way, as {newest.mode.value}"
        + (f", to {newest.to}" if newest.to else ""),
        hint=f"finish it with {command('rebuild', table, *switches)}, or give it up with --restart",
    )


def _check_key(
    store: ObjectStore, pipeline: str, state: TableState, mode: Mode, table: str
) -> None:
    """Check the key before there is a record of a rebuild that could only be given up."""
    keyless = state.schema is not None and not Chain(store, pipeline).read_schema(state.schema).key
    if keyless and mode in (Mode.SOFT_DELETES, Mode.HISTORY):
        raise Misconfigured(
            f"{table} cannot be rebuilt: {NEEDS_KEY.format(mode=mode.value)}",
            hint="docs/KEYLESS.md says how a table gets a key",
        )


def _check_layout(store: ObjectStore, settings: Settings, now: Now, mode: Mode, table: str) -> None:
    """Check what the table is to be made with, before it is built for nothing."""
    own = settings.of_table(parse_table(table))
    if not limited(own, now.live):
        return
    schema = Chain(store, settings.pipeline).read_schema(now.state.schema or "")
    problem = unmakeable(schema, own, mode, now.live)
    if problem is not None:
        raise Misconfigured(f"{table} cannot be rebuilt: {problem}", hint="docs/LAYOUT.md")


def _check_layout_begun(settings: Settings, record: RebuildRecord, now: Now) -> None:
    """Check that what the rebuild has built is as the settings say now: it would take the live
    table's place in a layout that they no longer ask for, or fail on a row that this cannot
    keep."""
    url = made_at(settings, record)
    made = target_at(settings, now.tail, record.table, now.state, url)
    wanted = settings.of_table(parse_table(record.table)).layout
    if made.exists and made.layout != wanted:
        raise Fenced(
            f"rebuild {record.build} of {record.table} is under way, {made.layout}; the settings"
            f" say {wanted}",
            hint="give it up with --restart, or finish it with the settings that it began with",
        )


def _fits(record: RebuildRecord, now: Now) -> bool:
    same = record.incarnation == now.tail.incarnation
    return same and record.generation == now.state.generation


def _newest(settings: Settings, store: ObjectStore, table: str) -> RebuildRecord | None:
    keys = store.list(layout.rebuilds_prefix(settings.pipeline, parse_table(table)))
    return read_stored(store, max(keys), decode_rebuild) if keys else None
