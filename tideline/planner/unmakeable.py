"""Finds tables that could not be made as the settings say now: for `tideline doctor`, before a
merge or a rebuild finds it out."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.schema import parse_table
from tideline.planner.layouts import limited, unmakeable
from tideline.planner.targets import target_of
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


def unmakeable_tables(settings: Settings) -> tuple[Mapping[str, str], int]:
    """Return why tables of the chain cannot be made, or made again, with their layout and for their
    readers, by table; and the number of tables that have either.

    Reads the warehouse's logs of these tables alone. Raises Misconfigured and Unavailable.
    """
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    known = {} if tail is None else chain.open_state(tail).tables
    found: dict[str, str] = {}
    asked = 0
    for name, table in sorted(known.items()):
        wanted = settings.of_table(parse_table(name))
        if tail is None or table.schema is None or table.removed:
            continue
        if not (wanted.layout or wanted.readers):
            continue
        asked += 1
        target = target_of(settings, tail.manifest, name, table)
        if limited(wanted, target):
            mode = target.mode if target.exists else wanted.mode
            problem = unmakeable(chain.read_schema(table.schema), wanted, mode, target)
            if problem is not None:
                found[name] = problem
    return found, asked
