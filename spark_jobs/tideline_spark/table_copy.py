"""Makes what a copy of a table in another format is made of: rows, properties, commit metadata."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame

from tideline.contract.change_log import BEFORE_PREFIX, SEQUENCE
from tideline.contract.description import DESCRIPTION_PROPERTY
from tideline.contract.errors import CorruptData, Unavailable
from tideline.contract.evolution import COLUMNS_PROPERTY, TargetColumns
from tideline.contract.external_commits import SinceOurs
from tideline.contract.modes import Mode
from tideline.contract.moves import FORMER_PROPERTY, MOVED_PROPERTY, MOVING_PROPERTY, PlannedMove
from tideline.contract.plan import STANDING_PROPERTY, CommitMetadata, Plan, TablePlan
from tideline.contract.printable import command
from tideline.contract.table_layout import LAYOUT_PROPERTY
from tideline.contract.target_properties import lasting_properties
from tideline_spark.commit_metadata import unhealed, unhealed_at
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.partition_values import kept_values
from tideline_spark.schemas import column as col
from tideline_spark.schemas import spark_type
from tideline_spark.verification.same_rows import held_alike

_OF_A_TABLE = {
    DESCRIPTION_PROPERTY,  # It describes columns, which are described later.
    STANDING_PROPERTY,
    LAYOUT_PROPERTY,
    MOVED_PROPERTY,
    MOVING_PROPERTY,
    FORMER_PROPERTY,
}
"""Properties of ours that say something of the old table alone."""


def copied_metadata(
    plan: Plan, move: PlannedMove, live: TargetSnapshot, since: SinceOurs
) -> CommitMetadata:
    """Return the metadata of the commit that makes the copy: what is known of the rows of ``live``.

    Raises CorruptData where these are older than what it has applied, and Unavailable where its log
    no longer shows what that is.
    """
    before = since.commit_metadata
    if since.went_back:
        raise CorruptData(
            f"{move.table} was set back behind what is applied (RESTORE)",
            hint=f"run {command('dump', move.table)} and merge it, or"
            f" {command('rebuild', move.table)}, and move it then",
        )
    number = live.applied[move.live_app_id]
    if before is None or before.to_manifest != number:
        if number != move.to_manifest:
            raise Unavailable(
                f"the log of {move.table} does not show what manifest {number} holds",
                hint="run the command again",
            )
        before = None
    seq = move.to_seq if before is None else before.seq
    return CommitMetadata(
        app_id=move.app_id,
        pipeline=plan.pipeline,
        incarnation=plan.incarnation,
        plan_id=plan.plan_id,
        from_manifest=number,
        to_manifest=number,
        seq=seq,
        complete_through_us=None if before is None else before.complete_through_us,
        unhealed=unhealed(live, since),
        unhealed_seq=unhealed_at(live, since, seq),
        pending=before is None or before.pending,
        digest=move.to_digest if before is None else before.digest,
    )


def planned_copy(move: PlannedMove, commit_metadata: CommitMetadata) -> TablePlan:
    """Return the plan of a table that is made, from which its format makes it."""
    return TablePlan(
        table=move.table,
        target=move.target,
        schema=move.schema,
        schemas={},
        parts=(),
        from_manifest=commit_metadata.from_manifest,
        from_seq=commit_metadata.seq,
        to_manifest=commit_metadata.to_manifest,
        to_seq=commit_metadata.seq,
        app_id=move.app_id,
        create=True,
        mode=move.mode,
        build=move.build,
        deletion_vectors=move.deletion_vectors,
        layout=move.layout,
    )


def copied_rows(rows: DataFrame, table: TablePlan, stands: TargetColumns) -> DataFrame:
    """Return the old table's ``rows``, with the source's types where its format has others."""
    wanted = {
        name: spark_type(one.logical)
        for one in table.schema.columns
        if one.name not in {*stands.away, *stands.narrow}
        for name in (one.name, BEFORE_PREFIX + one.name)
    }
    columns = [
        col(field.name).cast(wanted[field.name]).alias(field.name)
        if field.name in wanted and held_alike(field.dataType, wanted[field.name])
        else col(field.name)
        for field in rows.schema.fields
    ]
    rows = kept_values(_planned_apart(rows).select(*columns), table)
    if table.mode is Mode.APPEND:
        return rows.repartitionByRange(col(SEQUENCE)).sortWithinPartitions(col(SEQUENCE))
    return rows


def _planned_apart(rows: DataFrame) -> DataFrame:
    """Return ``rows`` with a physical plan of their own, which runs as they are read.

    Delta does not prepare a scan of its files within a statement that writes through another
    format (4.4.0: `PrepareDeltaScan` leaves out every `V2WriteCommand`), and then fails on a table
    with deletion vectors.
    """
    java: Any = rows._jdf
    planned = java.queryExecution().toRdd()
    made = java.sparkSession().internalCreateDataFrame(planned, java.schema(), False)
    return DataFrame(made, rows.sparkSession)


def copied_properties(
    move: PlannedMove, live: TargetSnapshot, stands: TargetColumns
) -> dict[str, str]:
    """Return the new table's properties: those of ours about the rows, and that it is not in
    use yet."""
    found = {
        name: value
        for name, value in live.properties.items()
        if name.startswith("tideline.") and name not in _OF_A_TABLE
    }
    if COLUMNS_PROPERTY in found:
        # The rows have the values that the column steps left to fill in.
        found[COLUMNS_PROPERTY] = replace(stands, refill=type(stands.refill)()).text()
    return {
        **found,
        **lasting_properties(move.mode, move.build),
        **move.layout.properties(),
        MOVING_PROPERTY: move.source,
        FORMER_PROPERTY: move.source,
    }
