"""``current``: the source's rows as they are now. A delete removes its row.

What a target does with the folded rows depends on how it is written: see `streamed`, too.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tideline_spark import parts
from tideline_spark.fill import columns_of_moved, fill_moved, initial_rows, twins
from tideline_spark.fold import Shape, fold, keys_left
from tideline_spark.formats.state import RowCounts
from tideline_spark.modes.base import Work
from tideline_spark.modes.streamed import commit_streamed
from tideline_spark.plan_checks import rowless_commit_metadata
from tideline_spark.statement import delete_rows, key_bounds, merge_rows

VIEW = "tideline_changes"
_TWINS = "tideline_twins"


class Current:
    """One MERGE of the newest state of each key, or a stream of them."""

    pends = True

    def commit(self, work: Work) -> RowCounts | None:
        table, target = work.table, work.target
        shape = shape_of(work)
        folded = fold(work.changes, shape)
        if table.create:
            initial_rows(folded, shape).createOrReplaceTempView(VIEW)
            work.before_commit()
            return work.create(VIEW)
        if table.layout.streamed:
            return commit_streamed(work, folded, shape)
        from_target = shape.moved and bool(shape.fillable)
        if from_target:
            held = target.rows_of(columns_of_moved(shape), [], keys_left(work.changes, shape))
            folded = fill_moved(folded, held, shape)
        drop_twins(work, folded, shape)
        folded.createOrReplaceTempView(VIEW)
        dropped = [name for name in table.dropped if name in work.snapshot.schema.names]
        rows = merge_rows(table, VIEW, shape.fillable, dropped, shape.carried)
        work.before_commit()
        still = work.local and not from_target
        return work.merge(rows, still=still)

    def live(self) -> str:
        return "true"


def shape_of(work: Work) -> Shape:
    """Find the properties of the changes before they are folded; may run a job."""
    table = work.table
    return Shape(
        schema=table.schema,
        moved=parts.has_moves(table),
        fillable=parts.fillable_columns(work.changes, table, carried=bool(work.carried)),
        truncate=max(table.truncates, default=None),
        delete_before=table.delete_before,
        carried=work.carried,
        ranged=table.create,
    )


def drop_twins(work: Work, folded: DataFrame, shape: Shape) -> None:
    """Delete keys that a damaged target holds twice; this plan's MERGE writes them again.

    A separate commit that moves no number: if the run is killed after it, the plan runs again.
    """
    table = work.table
    if not (work.damage and parts.has_dump(table)):
        return
    held = work.target.rows_of(table.schema.key, key_bounds(table))
    found = twins(folded, held, shape)
    if found.isEmpty():
        return
    found.createOrReplaceTempView(_TWINS)
    commit_metadata = rowless_commit_metadata(work.commit_metadata, table, work.damage)
    work.target.repair(delete_rows(table, _TWINS), commit_metadata)
