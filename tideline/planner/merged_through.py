"""Finds the tables that have been merged since an earlier look, whoever merged them.

A pipeline's merger and commands merge without Airflow: its merge task updates the assets of what
they have merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tideline.planner.progress import applied_state
from tideline.planner.table_status import Through
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


class MergedThrough(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of every table at a look: merged through all that the chain of ``incarnation``
    had up to ``manifest_number``; those in ``others`` through that manifest (0: nothing)."""

    incarnation: str
    manifest_number: int
    others: Mapping[str, int] = msgspec.field(default_factory=dict)

    def of(self, table: str) -> int:
        return self.others.get(table, self.manifest_number)


def merged_since(
    settings: Settings, looks: Sequence[MergedThrough], own: Mapping[str, int]
) -> tuple[MergedThrough | None, dict[str, Through]]:
    """Return how far every table is merged, and of those that are further than at any of
    ``looks``, without the caller's doing, through where; None for a pipeline without a manifest.

    ``own``: the manifests that the caller itself has brought tables to. Without a look at this
    incarnation, every table with something merged is returned. Only targets of tables are read of
    which the chain has something after these looks.
    """
    chain = Chain(open_store(settings.store), settings.pipeline)
    entry = chain.tail()
    if entry is None:
        return None, {}
    tail = entry.manifest
    known = [one for one in looks if one.incarnation == tail.incarnation]
    tables = {
        name: table
        for name, table in chain.open_state(entry).tables.items()
        if table.schema is not None
    }
    before = {name: max((one.of(name) for one in known), default=0) for name in tables}
    moved = {
        name: table.last_data_manifest
        for name, table in tables.items()
        if table.last_data_manifest > before[name]
    }
    wanted = [name for name in moved if name not in own]
    looked_at = applied_state(settings, wanted).tables if wanted else {}
    found: dict[str, Through] = {}
    others: dict[str, int] = {}
    for name, last_data in moved.items():
        reached = own.get(name, before[name])
        merged = looked_at[name].merged if name in looked_at else None
        if merged is not None and (merged.manifest_number or 0) > reached:
            found[name], reached = merged, merged.manifest_number or 0
        if reached < last_data or reached > tail.manifest_number:
            others[name] = reached
    return MergedThrough(tail.incarnation, tail.manifest_number, others), found
