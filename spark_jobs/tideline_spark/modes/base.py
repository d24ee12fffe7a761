"""What a mode of keeping a table has to do, and what it is given for it.

`table_run` checks the target and the parts, takes the schema's steps and reads the changes; a mode
makes one commit of them that moves content and number together; `table_run` then reads the number
back. So whatever a mode does is safe to be killed, repeated or raced, as long as it commits once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession

from tideline.contract.evolution import AS_THE_SOURCE, COLUMNS_PROPERTY, TargetColumns
from tideline.contract.plan import Stamp, TablePlan
from tideline.contract.target_properties import kept_properties, owner_properties
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import RowCounts, TargetSnapshot


@dataclass(frozen=True, slots=True)
class Work:
    """One table of a plan, made ready for its commit.

    ``changes`` is what `parts.read_changes` gives. ``table.schema`` has the target's
    columns, which ``snapshot`` has too (of a table that exists). ``damage`` names changes by others
    that are not healed. ``before_commit`` is to be called right before the statement that commits.
    ``stands``: how the target's columns are other than the source's. ``local``: the changes lie in
    the driver, and are the same whenever they are read.
    """

    table: TablePlan
    session: SparkSession
    target: Target
    snapshot: TargetSnapshot
    stamp: Stamp
    changes: DataFrame
    damage: tuple[str, ...]
    before_commit: Callable[[], None]
    stands: TargetColumns = AS_THE_SOURCE
    local: bool = False

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that only the target has; a row that is written again keeps their values, and no
        value of them is ever asked for."""
        return tuple(name for name, kept in self.stands.kept.items() if kept.carried)

    def create(self, view: str, partitions: Sequence[str] = ()) -> RowCounts | None:
        """Make the target from the rows of ``view``; it says whose it is and how it is kept."""
        table, stamp, stands = self.table, self.stamp, self.stands
        properties = {
            **owner_properties((stamp.pipeline, stamp.incarnation, table.table)),
            **kept_properties(table.mode, table.build),
        }
        if stands.away or stands.kept or stands.narrow:
            properties[COLUMNS_PROPERTY] = stands.text()
        return self.target.create(view, table, properties, stamp, partitions)


class TableMode(Protocol):
    """One way of keeping a table. ``pends``: values that no change carries are asked for."""

    @property
    def pends(self) -> bool: ...

    def commit(self, work: Work) -> RowCounts | None:
        """Bring the target from ``a`` to ``b`` in one commit of ``work.stamp``: a new table where
        ``work.table.create`` says so. None when it was skipped, because another run was first.
        """
        ...

    def live(self) -> Column:
        """Which rows of the target stand for a row that the source has now."""
        ...
