"""Receipts of tables that others have merged: the pipeline's merger, commands, other tasks.

No other task updates the assets of what a merger has merged on its own. So each run of the merge
task leaves how far all tables were merged, and the next one updates the assets of those that are
further. That is an XCom, which goes with the run: a task that fails or is tried again updates
nothing in Airflow, and leaves nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import Outcome, TableReceipt

if TYPE_CHECKING:
    from tideline.planner import MergedThrough
    from tideline_airflow.hooks import TidelineHook

_KEYS = ("merged_through", "merged_through_undated")
"""Of runs with a logical date, and of those without. Airflow sorts earlier runs by that date alone:
where its database puts runs without one first, such a run would stay the newest for ever."""


def overtaken(refused: Mapping[str, TablePlan], plan: Plan) -> dict[str, TableReceipt]:
    """Return receipts of ``refused`` tables, by name, for which the next ``plan`` finds nothing to
    do: other runs have brought them to the end that was planned for them."""
    left = {*plan.delayed, *(one.table for one in plan.tables)}
    return {
        # Whether they are complete is not known here: rows may be pending.
        name: TableReceipt(name, Outcome.ALREADY_APPLIED, one.to_manifest, one.to_seq)
        for name, one in refused.items()
        if name not in left
    }


def since_last_run(
    hook: TidelineHook, own: Iterable[TableReceipt], context: Any
) -> tuple[MergedThrough | None, dict[str, TableReceipt]]:
    """Return how far all tables are merged, and receipts of those that others have brought further
    since the task's earlier runs; ``own`` are those that this run has merged."""
    from tideline.planner import MergedThrough, merged_since

    task = context["ti"]
    here = {"task_ids": task.task_id, "map_indexes": task.map_index, "include_prior_dates": True}
    left = [task.xcom_pull(key=key, **here) for key in _KEYS]
    looks = [msgspec.convert(one, MergedThrough) for one in left if one is not None]
    done = {one.table: one.applied_manifest for one in own}
    look, found = merged_since(hook.settings, looks, done)
    receipts = {
        name: TableReceipt(
            name,
            Outcome.ALREADY_APPLIED,
            through.manifest_number or 0,
            through.seq,
            through.source_time_us,
        )
        for name, through in found.items()
    }
    return look, receipts


def keep_look(look: MergedThrough, context: Any) -> None:
    """Leave ``look`` to the task's later runs."""
    key = _KEYS[context["dag_run"].logical_date is None]
    context["ti"].xcom_push(key=key, value=msgspec.to_builtins(look))
