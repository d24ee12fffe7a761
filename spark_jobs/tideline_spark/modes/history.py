"""``history``: every version of every row, with the sequences and times of its validity.

A version is identified by its key and the sequence that opened it, so that a plan that was already
applied overwrites the same versions with themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame

from tideline.contract.evolution import filled_since
from tideline.contract.part import SEQ
from tideline.contract.plan import TablePlan
from tideline_spark.formats.state import RowCounts
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target
from tideline_spark.modes.base import Work
from tideline_spark.modes.versioned import ends_row, first_end, same_rows, versions_of
from tideline_spark.schemas import WAREHOUSE_COLUMNS, quote
from tideline_spark.schemas import column as col
from tideline_spark.version_context import CURRENT, FROM, FROM_SEQ, TO, TO_SEQ

_VIEW = "tideline_versions"


class History:
    """One MERGE that closes versions, completes those that stay open, and adds new ones."""

    pends = True

    def commit(self, work: Work) -> RowCounts | None:
        table = work.table
        added_at = filled_since(table, work.stands)
        found = versions_of(work, None if table.create else partial(_open_at, work), added_at)
        rows = found.withColumn(CURRENT, col(TO_SEQ).isNull()).select(
            *(col(name) for name in _columns(table))
        )
        rows.createOrReplaceTempView(_VIEW)
        work.before_commit()
        if table.create:
            return work.create(_VIEW)
        return work.merge(_merge(table, added_at))

    def live(self) -> str:
        return quote(CURRENT)


def _columns(table: TablePlan) -> list[str]:
    own = [*WAREHOUSE_COLUMNS, FROM_SEQ, TO_SEQ, FROM, TO, CURRENT]
    return [*table.schema.column_names, *own]


def _open_at(work: Work, bounds: Sequence[str], keys: DataFrame) -> DataFrame:
    """Return the versions of ``keys`` that were open where the plan begins, as they were then.

    In a target that stands there these are the open ones; sequences identify a version that another
    run of a plan from the same start has closed or opened since.
    """
    start, ended = work.table.from_seq, quote(TO_SEQ)
    still_open = (f"{quote(FROM_SEQ)} <= {start}", f"({ended} IS NULL OR {ended} > {start})")
    names = [*work.table.schema.column_names, *WAREHOUSE_COLUMNS, FROM_SEQ, FROM]
    return work.target.rows_of(names, [*still_open, *bounds], keys)


def _merge(table: TablePlan, added_at: Mapping[str, int]) -> RowMerge:
    """Return the merge. A row that it ends, and that no change touches, was open when the columns
    in ``added_at`` got their defaults, and so has them, unless it ended before."""
    written = [n for n in _columns(table) if n not in (*table.schema.key, FROM_SEQ, FROM)]
    return RowMerge(
        source=_VIEW,
        on=same_rows(table, (*table.schema.key, FROM_SEQ)),
        matched=(RowClause(values={name: of_source(name) for name in written}),),
        inserted=RowClause(values={name: of_source(name) for name in _columns(table)}),
        unmatched=_ended(table, added_at) if table.ends else None,
    )


def _ended(table: TablePlan, added_at: Mapping[str, int]) -> RowClause:
    seq, ended = of_target(SEQ), first_end(table, of_target(SEQ), "seq")
    values = {
        TO_SEQ: ended,
        TO: first_end(table, seq, "time"),
        CURRENT: "false",
    }
    values |= {
        name: f"CASE WHEN {ended} >= {since} THEN {of_target(name)} END"
        for name, since in added_at.items()
        if min(end.seq for end in table.ends) < since
    }
    return RowClause(f"{of_target(TO_SEQ)} IS NULL AND {ends_row(table, seq)}", values)
