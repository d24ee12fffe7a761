"""The table modes by name: what a merge does with the changes that it has read."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.errors import Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.plan import TablePlan
from tideline_spark.modes.append import Append
from tideline_spark.modes.base import TableMode
from tideline_spark.modes.counted import Counted, is_counted
from tideline_spark.modes.current import Current
from tideline_spark.modes.history import History
from tideline_spark.modes.soft_deletes import SoftDeletes

_MODES: Mapping[Mode, TableMode] = {
    Mode.CURRENT: Current(),
    Mode.SOFT_DELETES: SoftDeletes(),
    Mode.HISTORY: History(),
    Mode.APPEND: Append(),
}

_COUNTED = Counted()
"""`Mode.CURRENT` of a table without a key."""


def mode_of(table: TablePlan) -> TableMode:
    """Return the mode of the plan's table. Raises Misconfigured for an unknown mode."""
    if is_counted(table) and table.mode is Mode.CURRENT:
        return _COUNTED
    mode = None if is_counted(table) and table.mode is not Mode.APPEND else _MODES.get(table.mode)
    if mode is None:
        raise Misconfigured(
            f"{table.table} is to be kept as {table.mode.value}, which this program cannot",
            hint="upgrade spark_jobs: readers of plans are upgraded before those who write them",
        )
    return mode


def mode_named(mode: Mode) -> TableMode:
    """Return a mode of tables that have a key."""
    return _MODES[mode]
