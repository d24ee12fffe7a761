"""``soft_deletes``: the source's rows, and deleted ones with their last values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.part import SEQ, TS
from tideline.contract.plan import TablePlan
from tideline_spark.formats.state import RowCounts
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target
from tideline_spark.modes.base import Work
from tideline_spark.modes.versioned import ends_row, first_end, same_rows, versions_of
from tideline_spark.schemas import WAREHOUSE_COLUMNS, quote
from tideline_spark.schemas import column as col
from tideline_spark.version_context import FROM, FROM_SEQ, TO, TO_SEQ
from tideline_spark.working_columns import RANK

DELETED = "_tl_deleted"
DELETED_AT = "_tl_deleted_at"
DELETED_SEQ = "_tl_deleted_seq"
_VIEW = "tideline_rows"


class SoftDeletes:
    """One MERGE of the last version of each key, open or ended."""

    pends = True

    def commit(self, work: Work) -> RowCounts | None:
        table = work.table
        found = versions_of(work, None if table.create else partial(_live_rows, work))
        _last(found, table).createOrReplaceTempView(_VIEW)
        work.before_commit()
        if table.create:
            return work.create(_VIEW)
        return work.merge(_merge(table))

    def live(self) -> str:
        return f"NOT {quote(DELETED)}"


def _live_rows(work: Work, bounds: Sequence[str], keys: DataFrame) -> DataFrame:
    names = [*work.table.schema.column_names, *WAREHOUSE_COLUMNS]
    live = f"NOT coalesce({quote(DELETED)}, false)"
    held = work.target.rows_of(names, [live, *bounds], keys)
    return held.withColumn(FROM_SEQ, col(SEQ)).withColumn(FROM, col(TS))


def _last(versions: DataFrame, table: TablePlan) -> DataFrame:
    """Return the newest version of each key in the target's columns.

    ``_tl_seq`` of a deleted row is that of its deletion, as far as the plan knows the sequence.
    """
    # By their ends: the start of a damaged row cannot be trusted.
    newest = Window.partitionBy(*(col(n) for n in table.schema.key)).orderBy(
        col(TO_SEQ).desc_nulls_first()
    )
    over = col(TO_SEQ).isNotNull()
    seq = F.when(over, F.least(col(TO_SEQ), F.lit(table.to_seq))).otherwise(col(SEQ))
    names = [*table.schema.column_names, *WAREHOUSE_COLUMNS]
    return (
        versions.withColumn(RANK, F.row_number().over(newest))
        .where(col(RANK) == 1)
        .withColumn(SEQ, seq.cast("long"))
        .withColumn(TS, F.when(over, F.coalesce(col(TO), col(TS))).otherwise(col(TS)))
        .select(
            *(col(name) for name in names),
            over.alias(DELETED),
            col(TO).alias(DELETED_AT),
            col(TO_SEQ).alias(DELETED_SEQ),
        )
    )


def _columns(table: TablePlan) -> list[str]:
    own = [*WAREHOUSE_COLUMNS, DELETED, DELETED_AT, DELETED_SEQ]
    return [*table.schema.column_names, *own]


def _merge(table: TablePlan) -> RowMerge:
    written = [n for n in _columns(table) if n not in table.schema.key]
    return RowMerge(
        source=_VIEW,
        on=same_rows(table, table.schema.key),
        matched=(RowClause(values={name: of_source(name) for name in written}),),
        inserted=RowClause(values={name: of_source(name) for name in _columns(table)}),
        unmatched=_ended(table) if table.ends else None,
    )


def _ended(table: TablePlan) -> RowClause:
    seq = of_target(SEQ)
    ended, at = first_end(table, seq, "seq"), first_end(table, seq, "time")
    live = f"NOT coalesce({of_target(DELETED)}, false)"
    values = {
        DELETED: "true",
        DELETED_SEQ: ended,
        DELETED_AT: at,
        SEQ: f"least({ended}, {table.to_seq})",
        TS: f"coalesce({at}, {of_target(TS)})",
    }
    return RowClause(f"{live} AND {ends_row(table, seq)}", values)
