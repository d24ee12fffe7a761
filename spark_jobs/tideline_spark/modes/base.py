"""The interface of a table mode, and its inputs.

`table_run` checks the target and the parts, takes the schema steps and reads the changes; a mode
makes one commit of them that moves content and number together; `table_run` then reads the number
back. So a mode may be killed, repeated or raced, as long as it commits once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from tideline.contract.evolution import AS_THE_SOURCE, COLUMNS_PROPERTY, TargetColumns
from tideline.contract.partition_fields import PartitionField
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.table_layout import TableLayout
from tideline.contract.target_properties import lasting_properties, owner_properties
from tideline_spark.formats.base import Target
from tideline_spark.formats.state import RowCounts, TargetSnapshot
from tideline_spark.formats.statements import TARGET, RowMerge
from tideline_spark.partition_values import partition_bounds
from tideline_spark.plan_checks import check_new


@dataclass(frozen=True, slots=True)
class Work:
    """One table of a plan, ready for its commit.

    ``changes`` comes from `parts.read_changes`. ``table.schema`` has the target's columns, as
    ``snapshot`` of an existing table does. ``damage`` names changes by others that are not
    repaired. ``before_commit`` must be called right before the statement that commits. ``stands``:
    how the target's columns differ from the source's. ``local``: the changes lie in the driver, and
    repeated reads give the same rows. ``partitions``: as `partitions_of` returns them.
    """

    table: TablePlan
    session: SparkSession
    target: Target
    snapshot: TargetSnapshot
    commit_metadata: CommitMetadata
    changes: DataFrame
    damage: tuple[str, ...]
    before_commit: Callable[[], None]
    stands: TargetColumns = AS_THE_SOURCE
    local: bool = False
    partitions: Mapping[PartitionField, Sequence[str]] = field(default_factory=dict)

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that only the target has; a rewritten row keeps their values, which are never
        requested."""
        return tuple(name for name, kept in self.stands.retained.items() if kept.carried)

    def create(self, view: str, layout: TableLayout | None = None) -> RowCounts | None:
        """Make the target from the rows of ``view``, with its owner and mode as properties, in the
        plan's layout, or in the mode's own ``layout``."""
        table, commit_metadata, stands = self.table, self.commit_metadata, self.stands
        properties = {
            **owner_properties(
                (commit_metadata.pipeline, commit_metadata.incarnation, table.table)
            ),
            **lasting_properties(table.mode, table.build),
            **table.layout.properties(),
        }
        if stands.away or stands.retained or stands.narrow:
            properties[COLUMNS_PROPERTY] = stands.text()
        check_new(table)
        layout = table.layout if layout is None else layout
        return self.target.create(view, table, properties, commit_metadata, layout)

    def merge(self, rows: RowMerge, *, still: bool = False) -> RowCounts | None:
        """Run ``rows`` as the target's one merge (see `Target.merge`). It reads only the partitions
        of its keys, unless it changes rows that it holds no change of."""
        if rows.unmatched is None:
            on = [rows.on, *partition_bounds(self.partitions, f"{TARGET}.")]
            rows = replace(rows, on=" AND ".join(on))
        return self.target.merge(rows, self.commit_metadata, still=still)


class TableMode(Protocol):
    """One table mode. ``pends``: values that no change carries are requested."""

    @property
    def pends(self) -> bool: ...

    def commit(self, work: Work) -> RowCounts | None:
        """Bring the target to the plan's end in one commit of ``work.commit_metadata``: a new
        table where ``work.table.create`` says so. None when it was skipped because another run was
        first.
        """
        ...

    def live(self) -> str:
        """Return SQL: the condition for target rows that represent a row now in the source."""
        ...
