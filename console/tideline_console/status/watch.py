"""Makes a status with each table's lateness and how far its objective was met.

Invariant: its parts do not contradict each other. Each statement about a table, a worker or a time
follows from one rule, and other statements build on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.timeliness import Objective
from tideline.control import Heard
from tideline.planner import WarehouseTables
from tideline_console.freshness import (
    ChainEnd,
    FreshnessWatch,
    compliance_by_table,
    compliance_in_all,
    lateness,
)
from tideline_console.status.document import Status
from tideline_console.status.making import judged, make_status


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """The inputs of a status. ``merged`` and ``heard`` were read before the chain's ``tail`` and
    ``state``, and are None when warehouse or queue were unavailable. ``began_us``: when the first
    manifest was written. ``now_us``: this machine's clock after all reading. ``merger``: whether
    one runs."""

    tail: Manifest | None
    state: OpenState
    heard: Sequence[Heard] | None
    merged: WarehouseTables | None
    began_us: int | None
    now_us: int
    merger: bool = False


@dataclass(frozen=True, slots=True)
class SilenceLimits:
    """The time limits after which a worker is silent, and its chain abandoned."""

    heartbeat_s: float
    takeover_after_s: float


def status_of(
    pipeline: str, read: StatusInputs, watch: FreshnessWatch, limits: SilenceLimits
) -> Status:
    """Make the whole status, except the reasons for missing parts."""
    heard, tail = read.heard, read.tail
    workers = None if heard is None else judged(heard, tail, limits.heartbeat_s)
    status = make_status(
        pipeline,
        tail,
        read.state,
        workers=workers,
        merged=read.merged or WarehouseTables(),
        takeover_after_s=limits.takeover_after_s,
        now_us=read.now_us,
    )
    if tail is None:
        return status
    end = ChainEnd(tail, workers, limits.takeover_after_s, read.now_us, read.began_us, read.merger)
    # Nothing can have been late, or merged, before there was a pipeline.
    watch = replace(watch, since_us=max(watch.since_us, read.began_us or 0))
    return watched(status, end, read.state, read.merged, watch)


def watched(
    status: Status,
    chain: ChainEnd,
    state: OpenState,
    merged: WarehouseTables | None,
    watch: FreshnessWatch,
) -> Status:
    """Add lateness and budgets to ``status``, made from the same ``chain`` and ``state``.

    ``merged`` is None when the warehouse was unavailable: then no table is called late.
    ``watch.objective_of("")`` is the objective of the pipeline.
    """
    budgets = compliance_by_table(watch, [one.table for one in status.tables])
    tables = []
    for one in status.tables:
        late = None
        if merged is not None:
            found = merged.settled(one.table, state.tables[one.table])
            late = lateness(chain, one, found, merged.holds_up(one.table), watch)
        tables.append(msgspec.structs.replace(one, late=late, slo=budgets.get(one.table)))
    whole = compliance_in_all(watch, watch.objective_of(""))
    return msgspec.structs.replace(status, tables=tuple(tables), slo=whole)


def objectives(percent: float, within_s: float) -> Objective:
    return Objective(percent, round(within_s * 1_000_000))
