"""Computes the versions that a plan makes, for the modes that keep rows beyond their end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.part import PENDING, SEQ, UNCHANGED
from tideline.contract.plan import PlannedEnd, TablePlan
from tideline_spark import parts
from tideline_spark.fold import Shape, occurrences
from tideline_spark.formats.statements import TARGET, of_source, of_target
from tideline_spark.modes.base import Work
from tideline_spark.partition_values import partition_bounds
from tideline_spark.schemas import column as col
from tideline_spark.statement import key_bounds
from tideline_spark.version_context import FROM_SEQ, VersionContext
from tideline_spark.versions import versions
from tideline_spark.working_columns import RANK

OpenRows = Callable[[Sequence[str], DataFrame], DataFrame]
"""Returns the target's open rows within conditions and of keys, a row for each: the table's
columns, those of `schemas.WAREHOUSE_COLUMNS`, ``_tl_valid_from`` and ``_tl_valid_from_seq``."""


def versions_of(
    work: Work, open_rows: OpenRows | None, added_at: Mapping[str, int] | None = None
) -> DataFrame:
    """Return the versions that the plan makes or ends, from the target's ``open_rows`` (or None).
    ``added_at`` as in `versions.VersionContext`.
    """
    table = work.table
    changes = work.changes.where(col(SEQ) > F.lit(table.start_seq))
    seeds = None if open_rows is None else _touched(work, changes, open_rows)
    context = VersionContext(
        schema=table.schema,
        moved=parts.has_moves(table),
        fillable=_fillable(work, changes, seeds),
        ends=table.ends,
        dumped=parts.has_dump(table),
        unasked=tuple(work.stands.retained),
        dropped_at={
            name: kept.seq for name, kept in work.stands.retained.items() if not kept.carried
        },
        added_at=added_at or {},
    )
    return versions(changes, seeds, context)


def _touched(work: Work, changes: DataFrame, open_rows: OpenRows) -> DataFrame:
    """Return the open rows of the keys in ``changes``, one per key even in a damaged target.

    A sequence above the applied one is damage: such a row must not come after the changes.
    """
    table = work.table
    bounds = [*key_bounds(table), *partition_bounds(work.partitions)]
    keys = occurrences(changes, Shape(table.schema, moved=parts.has_moves(table)))
    names = list(table.schema.key)
    wanted = keys.select(*(col(name) for name in names)).distinct()
    found = open_rows(bounds, wanted)
    newest = Window.partitionBy(*(col(name) for name in names)).orderBy(col(FROM_SEQ).desc())
    applied = F.lit(table.from_seq).cast("long")
    return (
        found.withColumn(RANK, F.row_number().over(newest))
        .where(col(RANK) == 1)
        .withColumn(SEQ, F.least(F.coalesce(col(SEQ), applied), applied))
        .select(*(col(name) for name in found.columns))
    )


def _fillable(work: Work, changes: DataFrame, seeds: DataFrame | None) -> tuple[str, ...]:
    """Return the columns that a change or an open row lacks; runs a job if there can be any."""
    if not work.commit_metadata.pending and not work.carried:
        return ()
    lists = changes.select(col(UNCHANGED).alias("names"))
    if seeds is not None:
        lists = lists.unionByName(seeds.select(col(PENDING).alias("names")))
    found = lists.select(F.explode("names").alias("name")).distinct().collect()
    lacking = {row["name"] for row in found}
    schema = work.table.schema
    return tuple(n for n in schema.column_names if n in lacking and n not in schema.key)


def same_rows(plan: TablePlan, names: Sequence[str]) -> str:
    """Return SQL: ``names`` are equal, within the bounds of the plan's keys; without bounds in a
    plan that ends rows, which reads every row of the target anyway."""
    same = [f"{of_target(name)} = {of_source(name)}" for name in names]
    return " AND ".join([*same, *([] if plan.ends else key_bounds(plan, f"{TARGET}."))])


def first_end(plan: TablePlan, seq: str, what: str) -> str:
    """Return SQL: the sequence (``what`` = ``seq``) or time (``time``) of the end of a row last
    seen at ``seq``; the last end for a damaged row that no change of the plan explains."""
    cases = "".join(
        f" WHEN {seq} <= {end.delete_before} THEN {_of(end, what)}" for end in plan.ends
    )
    return f"CASE{cases} ELSE {_of(plan.ends[-1], what)} END"


def ends_row(plan: TablePlan, seq: str) -> str:
    """Return SQL: whether the plan ends a row that none of its changes touches."""
    latest = max(end.delete_before for end in plan.ends)
    return f"({seq} <= {latest} OR {seq} > {plan.from_seq} OR {seq} IS NULL)"


def _of(end: PlannedEnd, what: str) -> str:
    if what == "seq":
        return str(end.seq)
    if end.time_us is None:
        return "cast(NULL as timestamp)"
    return f"timestamp_micros({end.time_us})"
