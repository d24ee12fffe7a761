"""Plans merges, and reports how far the warehouse's tables are, from the chain and the tables'
logs. Runs no Spark."""

from tideline.planner.keys import key_columns
from tideline.planner.merged_through import MergedThrough, merged_since
from tideline.planner.merges import plan_merge, preview_plan, read_receipt
from tideline.planner.pending import pending_requests
from tideline.planner.progress import WarehouseTables, applied_state
from tideline.planner.rebuilds import begin_rebuild, next_step
from tideline.planner.runs import recent_runs

__all__ = [
    "MergedThrough",
    "WarehouseTables",
    "applied_state",
    "begin_rebuild",
    "key_columns",
    "merged_since",
    "next_step",
    "pending_requests",
    "plan_merge",
    "preview_plan",
    "read_receipt",
    "recent_runs",
]
