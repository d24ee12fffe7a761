"""Adds to a status how late each table is and how far the objective was kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from console.freshness import Chain, Table, Watch, kept_by_table, kept_in_all, lateness
from console.status_document import Status, TableStatus
from console.status_making import Merged
from tideline.contract.manifest import OpenState
from tideline.contract.timeliness import Objective


def watched(
    status: Status,
    chain: Chain,
    state: OpenState,
    merged: Mapping[str, Merged] | None,
    watch: Watch,
) -> Status:
    """``status``, made of the same ``chain`` and ``state``, with lateness and budgets.

    ``merged`` is None when the warehouse could not be asked: then no table is called late.
    ``watch.objective_of("")`` is the objective of the pipeline.
    """
    budgets = kept_by_table(watch, [one.table for one in status.tables])
    tables = []
    for one in status.tables:
        late = None if merged is None else lateness(chain, _table(one, state, merged), watch)
        tables.append(msgspec.structs.replace(one, late=late, slo=budgets.get(one.table)))
    whole = kept_in_all(watch, watch.objective_of(""))
    return msgspec.structs.replace(status, tables=tuple(tables), slo=whole)


def _table(one: TableStatus, state: OpenState, merged: Mapping[str, Merged]) -> Table:
    found = merged.get(one.table)
    stop = None if found is None or found.stop is None else str(found.stop)
    return Table(
        one.table,
        state.tables[one.table],
        one.complete_through_us,
        waits=not one.up_to_date,
        doubt=None if found is None else found.doubt or stop,
    )


def objectives(percent: float, within_s: float) -> Objective:
    """An objective as the settings give it."""
    return Objective(percent, round(within_s * 1_000_000))
