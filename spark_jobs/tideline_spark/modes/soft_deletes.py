"""``soft_deletes``: the source's rows, and those it deleted, with the values they had last."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.plan import TablePlan
from tideline_spark.modes.base import Counts, Work, made, merged
from tideline_spark.modes.versioned import ends_row, first_end, same_rows, versions_of
from tideline_spark.schemas import SEQ, TS, WAREHOUSE_COLUMNS, quote
from tideline_spark.schemas import column as col
from tideline_spark.story import FROM, FROM_SEQ, TO, TO_SEQ

DELETED = "_tl_deleted"
DELETED_AT = "_tl_deleted_at"
DELETED_SEQ = "_tl_deleted_seq"
_VIEW = "tideline_rows"
_RANK = "_tl_rank"
_T = "_tl_target"
_S = "_tl_source"


class SoftDeletes:
    """One MERGE of the last version of each key, open or ended."""

    pends = True

    def commit(self, work: Work) -> Counts | None:
        table, target = work.table, work.target
        found = versions_of(work, None if table.create else _live_rows(work))
        _last(found, table).createOrReplaceTempView(_VIEW)
        work.before_commit()
        if table.create:
            return made(target.create(_VIEW, table, work.stamp))
        return merged(target.merge(_statement(table, target.name), work.stamp))

    def live(self) -> Column:
        return ~col(DELETED)


def _live_rows(work: Work) -> DataFrame:
    names = [*work.table.schema.column_names, *WAREHOUSE_COLUMNS]
    held = work.session.table(work.target.name).where(~F.coalesce(col(DELETED), F.lit(False)))
    named = held.select(*(col(name) for name in names))
    return named.withColumn(FROM_SEQ, col(SEQ)).withColumn(FROM, col(TS))


def _last(versions: DataFrame, table: TablePlan) -> DataFrame:
    """The newest version of each key in the target's columns.

    ``_tl_seq`` of a deleted row is that of what deleted it, as far as the plan knows of sequences.
    """
    # By their ends: where a damaged row says that it began is not to be believed.
    newest = Window.partitionBy(*(col(n) for n in table.schema.key)).orderBy(
        col(TO_SEQ).desc_nulls_first()
    )
    over = col(TO_SEQ).isNotNull()
    seq = F.when(over, F.least(col(TO_SEQ), F.lit(table.b_seq))).otherwise(col(SEQ))
    names = [*table.schema.column_names, *WAREHOUSE_COLUMNS]
    return (
        versions.withColumn(_RANK, F.row_number().over(newest))
        .where(col(_RANK) == 1)
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


def _statement(table: TablePlan, target: str) -> str:
    same = same_rows(table, table.schema.key, _T, _S)
    written = [n for n in _columns(table) if n not in table.schema.key]
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
        live = f"NOT coalesce({_T}.{quote(DELETED)}, false)"
        ended, at = first_end(table, seq, "seq"), first_end(table, seq, "time")
        lines.append(
            f"WHEN NOT MATCHED BY SOURCE AND {live} AND {ends_row(table, seq)} THEN UPDATE SET"
            f" {_T}.{quote(DELETED)} = true, {_T}.{quote(DELETED_SEQ)} = {ended},"
            f" {_T}.{quote(DELETED_AT)} = {at}, {_T}.{quote(SEQ)} = least({ended}, {table.b_seq}),"
            f" {_T}.{quote(TS)} = coalesce({at}, {_T}.{quote(TS)})"
        )
    return "\n".join(lines)
