"""``history``: every version of every row, with the sequences and times that it was valid for.

A version is known by its key and the sequence that opened it, so that a plan that was applied
before writes the same versions over themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.evolution import filled_since
from tideline.contract.plan import TablePlan
from tideline_spark.modes.base import Counts, Work, made, merged
from tideline_spark.modes.versioned import ends_row, first_end, same_rows, versions_of
from tideline_spark.schemas import SEQ, WAREHOUSE_COLUMNS, quote
from tideline_spark.schemas import column as col
from tideline_spark.story import FROM, FROM_SEQ, TO, TO_SEQ

CURRENT = "_tl_current"
_VIEW = "tideline_versions"
_T = "_tl_target"
_S = "_tl_source"


class History:
    """One MERGE that closes versions, completes those that stay open, and adds new ones."""

    pends = True

    def commit(self, work: Work) -> Counts | None:
        table, target = work.table, work.target
        came = filled_since(table, work.stands)
        found = versions_of(work, None if table.create else _open_at(work), came)
        rows = found.withColumn(CURRENT, col(TO_SEQ).isNull()).select(
            *(col(name) for name in _columns(table))
        )
        rows.createOrReplaceTempView(_VIEW)
        work.before_commit()
        if table.create:
            return made(target.create(_VIEW, table, work.stamp))
        return merged(target.merge(_statement(table, target.name, came), work.stamp))

    def live(self) -> Column:
        return col(CURRENT)


def _columns(table: TablePlan) -> list[str]:
    own = [*WAREHOUSE_COLUMNS, FROM_SEQ, TO_SEQ, FROM, TO, CURRENT]
    return [*table.schema.column_names, *own]


def _open_at(work: Work) -> DataFrame:
    """The versions that were open where the plan begins, as they were then.

    In a target that stands there these are the open ones; a version that another run of a plan from
    the same place has closed or opened since is told by its sequences.
    """
    table = work.table
    start = F.lit(table.a_seq)
    still_open = col(TO_SEQ).isNull() | (col(TO_SEQ) > start)
    held = work.session.table(work.target.name).where((col(FROM_SEQ) <= start) & still_open)
    names = [*table.schema.column_names, *WAREHOUSE_COLUMNS, FROM_SEQ, FROM]
    return held.select(*(col(name) for name in names))


def _statement(table: TablePlan, target: str, came: Mapping[str, int]) -> str:
    """The MERGE. A row that it ends, and that no change touches, was open when the columns in
    ``came`` got their defaults, and so has them; unless its end was before."""
    same = same_rows(table, (*table.schema.key, FROM_SEQ), _T, _S)
    written = [n for n in _columns(table) if n not in (*table.schema.key, FROM_SEQ, FROM)]
    updates = ", ".join(f"{_T}.{quote(n)} = {_S}.{quote(n)}" for n in written)
    names = ", ".join(quote(n) for n in _columns(table))
    values = ", ".join(f"{_S}.{quote(n)}" for n in _columns(table))
    lines = [
        f"MERGE INTO {target} AS {_T} USING {_VIEW} AS {_S} ON {same}",
        f"WHEN MATCHED THEN UPDATE SET {updates}",
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})",  # noqa: S608  quoted
    ]
    if table.ends:
        seq = f"{_T}.{quote(SEQ)}"
        still_open = f"{_T}.{quote(TO_SEQ)} IS NULL"
        ended = first_end(table, seq, "seq")
        set_too = "".join(
            f", {_T}.{quote(n)} = CASE WHEN {ended} >= {since} THEN {_T}.{quote(n)} END"
            for n, since in came.items()
            if min(end.seq for end in table.ends) < since
        )
        lines.append(
            f"WHEN NOT MATCHED BY SOURCE AND {still_open} AND {ends_row(table, seq)}"
            f" THEN UPDATE SET {_T}.{quote(TO_SEQ)} = {ended},"
            f" {_T}.{quote(TO)} = {first_end(table, seq, 'time')},"
            f" {_T}.{quote(CURRENT)} = false{set_too}"
        )
    return "\n".join(lines)
