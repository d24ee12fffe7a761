"""``tideline delete-former``: removes what a table was before it was moved to another format.

Also copies that moves which were given up have left. The table that merges go to is never among
them: which one that is, the tables themselves say.
"""

from __future__ import annotations

from collections.abc import Callable

from tideline.contract.errors import Misconfigured
from tideline.contract.printable import command
from tideline.contract.target_url import table_format_of
from tideline.planner.stored import existing, no_such_table
from tideline.planner.targets import other_owner, tables_not_in_use, target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.warehouse.state import TargetState
from tideline_console.deleted_files import table_removal
from tideline_console.output import say


def run(
    settings: Settings,
    table: str,
    *,
    yes: bool,
    before_removal: Callable[[str], None] = lambda url: None,
) -> int:
    """List such tables of ``table``, and with ``yes`` remove them; 0. ``before_removal`` is called
    before each, for tests.

    Raises Misconfigured where the table that is in use does not exist, or has not ended its move.
    """
    live = _live(settings, table)
    found = tables_not_in_use(settings, table, live)
    if not found:
        say(f"{table} is at {live.url}, and there is no other table of it")
        return 0
    say(f"{table} is at {live.url}; no longer in use:")
    for one in found:
        say(f"  {one.url}: {_what(one)}")
    if not yes:
        say("nothing is removed yet: --yes does it")
        return 0
    for one in found:
        before_removal(one.url)
        _check_still(settings, table, one.url)
        table_removal(settings, one.url).remove()
        say(f"removed {one.url}")
    return 0


def _live(settings: Settings, table: str) -> TargetState:
    chain = Chain(open_store(settings.store), settings.pipeline)
    entry = existing(settings, chain.tail())
    state = chain.open_state(entry).tables.get(table)
    if state is None:
        raise no_such_table(table)
    live = target_of(settings, entry.manifest, table, state)
    owner = other_owner(live, entry.manifest, table)
    if owner is not None or not (live.exists and live.in_use):
        raise Misconfigured(
            f"no table of {table} is in use: {owner or 'what is there may be all that is left'}",
            hint="`tideline status` says how it stands; remove tables by hand where that is meant",
        )
    if live.moving:
        again = command("rebuild", table, "--to", table_format_of(live.url))
        raise Misconfigured(
            f"the move of {table} to {live.url} lacks its last step", hint=f"run {again} again"
        )
    return live


def _check_still(settings: Settings, table: str, url: str) -> None:
    """Raise Misconfigured where the table at ``url`` has become the one in use."""
    live = _live(settings, table)
    if live.url == url:
        raise Misconfigured(f"{url} has taken over meanwhile: it is not removed")


def _what(one: TargetState) -> str:
    if one.moved_to:
        return f"what it was before it was moved to {one.moved_to}"
    if one.moving:
        return f"a copy of {one.moving} that was not finished (rebuild {one.build}): end its runs"
    return "another table of it, which nothing names"
