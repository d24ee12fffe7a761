"""Plans merges, and says how far the warehouse's tables are: the chain on one side, the tables'
logs on the other. Runs no Spark."""

from tideline.planner.merges import plan_merge, read_receipt
from tideline.planner.pending import pending_requests
from tideline.planner.progress import TableProgress, applied_state

__all__ = ["TableProgress", "applied_state", "pending_requests", "plan_merge", "read_receipt"]
