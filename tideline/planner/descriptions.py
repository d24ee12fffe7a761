"""Finds the targets whose description is to change: comments, and NOT NULL.

The catalog's newest description counts, whatever manifest a plan ends at: it names columns, and
those that a target lacks are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from tideline.contract.description import (
    PlannedDescription,
    is_described,
    planned_description,
)
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.plan import TablePlan
from tideline.contract.schema import TableSchema
from tideline.planner.start_points import Start, StartPoints
from tideline.store.chain import Chain

_DESCRIBED = (TableCondition.ACTIVE, TableCondition.NEEDS_RESNAPSHOT)


def descriptions(
    chain: Chain,
    tables: Mapping[str, TableState],
    start_points: StartPoints,
    found: Mapping[str, Start],
    plans: Iterable[TablePlan],
) -> Iterator[PlannedDescription]:
    """Return the descriptions of ``tables`` that ``plans`` advance, and of others that are up to
    date."""
    planned = {plan.table: plan for plan in plans}
    for name, start in found.items():
        table, plan = tables[name], planned.get(name)
        schema = _schema(table, start, start_points) if plan is None else plan.schema
        if schema is None or table.description is None:
            continue
        described = None if plan is not None and plan.create else start.described
        if is_described(described, table.description, schema.fingerprint):
            continue
        description = chain.read_description(table.description)
        made = planned_description(description, schema, start.url, start.applied.build)
        more = plan is not None and plan.to_manifest < table.last_data_manifest
        yield replace(made, more=more)


def _schema(table: TableState, start: Start, start_points: StartPoints) -> TableSchema | None:
    """Return the schema of an up-to-date target; None where that is not its last one."""
    applied = start.applied
    idle = applied.manifest is not None and applied.manifest >= table.last_data_manifest
    if not idle or start.waits or start.stop is not None or applied.went_back:
        return None
    if applied.problem is not None or table.condition not in _DESCRIBED or table.schema is None:
        return None
    return start_points.schema(table.schema)
