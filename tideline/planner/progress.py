"""How far every table is merged; what `tideline status` shows."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tideline.contract.layout import table_path
from tideline.contract.manifest import Manifest, TableCondition, TableState
from tideline.contract.plan import app_id
from tideline.contract.planning import complete_through
from tideline.contract.schema import parse_table
from tideline.planner.targets import Target, read_target
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store


class TableProgress(msgspec.Struct, frozen=True):
    """How far one table is merged.

    ``manifest`` and ``seq`` are the chain's tail when nothing of a captured table waits, else what
    its target has applied (0: nothing yet). ``complete_through_us`` is the source's clock (µs UTC)
    up to which the target lacks nothing, None while that is not known (`complete_through`).
    ``unproven`` names changes by others that no full dump has healed yet; ``problem`` says why the
    table cannot be merged.
    """

    table: str
    manifest: int
    seq: int
    complete_through_us: int | None
    waiting: bool
    unproven: tuple[str, ...] = ()
    problem: str | None = None


def applied_state(settings: Settings) -> Mapping[str, TableProgress]:
    """How far every table with a schema is merged; empty for a pipeline without a manifest.

    Reads the chain's tail and one log per table: milliseconds each, and no JVM.
    """
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return {}
    tables = chain.open_state(tail).tables
    return {
        name: _progress(settings, tail.manifest, name, table)
        for name, table in sorted(tables.items())
        if table.schema is not None
    }


def target_of(settings: Settings, tail: Manifest, name: str, table: TableState) -> Target:
    """The target of a table's present generation."""
    app = app_id(tail.pipeline, tail.incarnation, name, table.generation)
    return read_target(table_path(settings.warehouse.url, parse_table(name)), app)


def foreign_owner(target: Target, tail: Manifest, name: str) -> str | None:
    """Whose table lies at the target, when it is another history's; None when it is ours."""
    if not target.exists or target.owner == (tail.pipeline, tail.incarnation, name):
        return None
    pipeline, incarnation, table = target.owner
    if not pipeline:
        return f"{target.url} holds a table that Tideline did not make"
    return f"{target.url} holds {table} of pipeline {pipeline}, incarnation {incarnation}"


def _progress(settings: Settings, tail: Manifest, name: str, table: TableState) -> TableProgress:
    target = target_of(settings, tail, name, table)
    problem = foreign_owner(target, tail, name)
    if target.went_back:
        problem = "the target was set back behind what is applied (RESTORE)"
    stamp = target.stamp
    waiting = target.applied is None or target.applied < table.last_data_manifest
    if waiting or table.condition is TableCondition.PARKED:
        known = target.applied is not None and stamp is not None
        manifest = target.applied or 0
        seq = stamp.seq if known and stamp is not None else 0
        through = stamp.complete_through_us if known and stamp is not None else None
    else:
        manifest, seq, through = tail.manifest_number, tail.last_seq, complete_through(table, tail)
    return TableProgress(
        table=name,
        manifest=manifest,
        seq=seq,
        complete_through_us=None if problem or (stamp and stamp.unproven) else through,
        waiting=waiting,
        unproven=() if stamp is None else stamp.unproven,
        problem=problem,
    )
