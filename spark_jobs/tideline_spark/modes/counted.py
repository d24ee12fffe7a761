"""``current`` of a table without a key: equal rows are counted, and n of them stay n.

A row's identity is the row itself: a digest over its columns. A plan's changes add up in any order:
an insert adds one of its row, a delete removes one, an update does both. So a plan must be applied
exactly once, from exactly its start, which `table_run` ensures. Sequences distinguish the target's
rows: surplus rows are deleted by sequence.

A finished copy of the whole table (`Copied`) is the state at the plan's delete-before sequence, and
later changes are added to it. Unfinished copies are ignored.

Two rows are equal when all their columns are: NULL is equal to NULL; texts and bytes are compared
by their bytes; floats by their shortest text, so that 0 and -0 differ and every NaN is one; what
a column's type cannot hold by the source's own text.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.errors import CorruptData
from tideline.contract.part import (
    BEFORE,
    CREATED,
    DELETED,
    DUMPED,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    PENDING,
    SEQ,
    TS,
    UPDATED,
)
from tideline.contract.plan import TablePlan
from tideline.contract.printable import command
from tideline.contract.schema import Column as TableColumn
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind
from tideline_spark.formats.state import RowCounts
from tideline_spark.formats.statements import RowClause, RowMerge, of_source, of_target
from tideline_spark.modes.base import Work
from tideline_spark.schemas import STRING_LIST, STRING_MAP, spark_type
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import GONE, RANK, ROW

VIEW = "tideline_counted"
_LESS = "_tl_less"
_MORE = "_tl_more"


@dataclass(frozen=True, slots=True)
class _Sums:
    """A plan's totals. ``more``: rows to add, with their sequences. ``less``: digests, with the
    number of such rows that the target has too many; ``missing``: their total."""

    more: DataFrame
    less: DataFrame
    missing: int


class Counted:
    """One MERGE that adds and removes as many of each row as the plan's totals say."""

    pends = False

    def schema(self, table: TablePlan) -> TableSchema:
        return table.schema

    def commit(self, work: Work) -> RowCounts | None:
        table = work.table
        _check_start(table)
        sums = _sums(work)
        if (table.create or table.delete_before is not None) and sums.missing:
            raise _lacks(table, sums.missing)
        more = _in_columns(sums.more)
        if table.create:
            more.select(*_warehouse(table)).createOrReplaceTempView(VIEW)
            work.before_commit()
            return work.create(VIEW)
        view = more.withColumn(GONE, F.lit(False))
        if sums.missing:
            view = view.unionByName(_surplus(work, sums), allowMissingColumns=True)
        view.createOrReplaceTempView(VIEW)
        work.before_commit()
        return work.target.merge(_merge(table), work.commit_metadata)

    def live(self) -> str:
        return "true"


def is_counted(table: TablePlan) -> bool:
    """Return whether the plan's table has no key to distinguish its rows."""
    return not table.schema.key


def _check_start(table: TablePlan) -> None:
    """Check that updates and deletes have the row before, and that the plan holds a whole copy."""
    read = [part for part in table.parts if part.last_seq > (table.delete_before or 0)]
    changed = sum(n for part in read for op, n in part.operations.items() if op in "ud")
    if changed != sum(part.before_image_rows for part in read):
        raise CorruptData(
            f"changes of {table.table}, which has no key, lack the row before",
            hint=f"have whole rows logged, and run {command('dump', table.table)}",
        )
    copied = table.copied
    if copied is not None and not table.create and table.from_seq > (table.delete_before or 0):
        raise CorruptData(
            f"the plan of {table.table} begins in the middle of a copy of it",
            hint=f"run {command('dump', table.table)} and merge again",
        )


def _sums(work: Work) -> _Sums:
    table, columns = work.table, _identity(work)
    changes = _counting(work.changes, table)
    now = {one.name: col(one.name) for one in columns}
    added_rows = changes.where(col(OP).isin(CREATED, UPDATED, DUMPED)).withColumn(
        ROW, digest(columns, now, col(OVERFLOW))
    )
    removed_rows = changes.where(col(OP).isin(UPDATED, DELETED)).select(
        _before(work, columns).alias(ROW)
    )
    _check_copy(added_rows, table)
    less = removed_rows.groupBy(ROW).agg(F.count(F.lit(1)).alias(_LESS))
    newest = Window.partitionBy(ROW).orderBy(col(SEQ).desc())
    ranked = added_rows.join(less, ROW, "left").withColumn(RANK, F.row_number().over(newest))
    left = F.coalesce(col(_LESS), F.lit(0))
    total = F.count(F.lit(1)).over(Window.partitionBy(ROW))
    more = ranked.withColumn(_MORE, total - left).where(col(RANK) <= col(_MORE))
    counts = added_rows.groupBy(ROW).agg(F.count(F.lit(1)).alias(_MORE))
    surplus = less.join(counts, ROW, "left").select(
        ROW, (col(_LESS) - F.coalesce(col(_MORE), F.lit(0))).alias(_LESS)
    )
    surplus = surplus.where(col(_LESS) > 0)
    changed = any(part.before_image_rows for part in table.parts)
    missing = surplus.agg(F.sum(_LESS)).first() if changed else None
    return _Sums(more, surplus, int(missing[0] or 0) if missing is not None else 0)


def _identity(work: Work) -> tuple[TableColumn, ...]:
    """Return the columns that distinguish rows: the source's. No change can name the value that a
    row keeps in a column dropped by the source."""
    return tuple(one for one in work.table.schema.columns if one.name not in work.carried)


def _counting(changes: DataFrame, table: TablePlan) -> DataFrame:
    """Return the changes that count: after the delete-before sequence, and in no copy that
    already shows them."""
    copied = table.copied
    dumped = col(OP) == DUMPED
    if table.delete_before is not None:
        changes = changes.where(col(SEQ) > F.lit(table.delete_before))
    if copied is None:
        return changes.where(~dumped)
    changes = changes.where(~dumped | (col(SEQ) <= F.lit(copied.last_seq)))
    for first, last in copied.seen:
        changes = changes.where(~col(SEQ).between(F.lit(first), F.lit(last)))
    return changes


def _check_copy(added_rows: DataFrame, table: TablePlan) -> None:
    if table.copied is None:
        return
    rows = added_rows.where(col(OP) == DUMPED).count()
    if rows != table.copied.rows:
        raise CorruptData(
            f"the plan of {table.table} holds {rows} rows of a copy that has {table.copied.rows}",
            hint=f"run {command('dump', table.table)} and merge again",
        )


def _before(work: Work, columns: tuple[TableColumn, ...]) -> Column:
    """Return the digest of the row before; NULL, which no row has, where it is unknown."""
    names = set(work.changes.columns)
    was = {
        one.name: col(BEFORE + one.name)
        if BEFORE + one.name in names
        else F.lit(None).cast(spark_type(one.logical))
        for one in columns
    }
    overflow = col(IMAGE_OVERFLOW) if IMAGE_OVERFLOW in names else F.lit(None).cast(STRING_MAP)
    return F.when(col(IMAGE), digest(columns, was, overflow))


def digest(columns: tuple[TableColumn, ...], values: dict[str, Column], overflow: Column) -> Column:
    """Return a digest equal only for equal rows: sha256 of each column's length-prefixed text.

    ``values`` are the row's, by column; ``overflow`` has the texts of those that did not fit.
    """
    pieces = []
    for one in columns:
        text = F.coalesce(
            F.concat(F.lit("o"), F.try_element_at(overflow, F.lit(one.name))),
            F.concat(F.lit("v"), _text(values[one.name], one.logical.kind)),
        )
        pieces.append(
            F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("-"))
        )
    return F.sha2(F.concat(*pieces), 256)


def _text(value: Column, kind: Kind) -> Column:
    """Return a value as its unique text, independent of the session's time zone."""
    if kind is Kind.BINARY:
        return F.hex(value)
    if kind is Kind.TIMESTAMP:
        return F.unix_micros(value).cast("string")
    return value.cast("string")


def _surplus(work: Work, sums: _Sums) -> DataFrame:
    """Return the sequences of the target's surplus rows."""
    table, columns = work.table, _identity(work)
    held = work.target.rows()
    now = {one.name: col(one.name) for one in columns}
    rows = held.select(col(SEQ), digest(columns, now, col(OVERFLOW)).alias(ROW))
    oldest = Window.partitionBy(ROW).orderBy(col(SEQ))
    found = (
        rows.join(sums.less, ROW)
        .withColumn(RANK, F.row_number().over(oldest))
        .where(col(RANK) <= col(_LESS))
        .select(col(SEQ), F.lit(True).alias(GONE))
    ).localCheckpoint()
    there = found.count()
    if there < sums.missing:
        raise _lacks(table, sums.missing - there)
    return found


def _lacks(table: TablePlan, rows: int) -> CorruptData:
    return CorruptData(
        f"the log deletes {rows} rows of {table.table} that its target does not have",
        hint=f"run {command('dump', table.table)} and merge again: the target was changed by"
        " others, or rows changed at the source without the log telling of it",
    )


def _in_columns(rows: DataFrame) -> DataFrame:
    return rows.withColumn(PENDING, F.lit(None).cast(STRING_LIST))


def _warehouse(table: TablePlan) -> list[Column]:
    return [col(name) for name in (*table.schema.column_names, SEQ, TS, OVERFLOW, PENDING)]


def _merge(table: TablePlan) -> RowMerge:
    names = (*table.schema.column_names, SEQ, TS, OVERFLOW, PENDING)
    values = {name: of_source(name) for name in names}
    return RowMerge(
        source=VIEW,
        on=f"{of_target(SEQ)} = {of_source(SEQ)}",
        matched=(RowClause(of_source(GONE)), RowClause(values=values)),
        inserted=RowClause(f"NOT {of_source(GONE)}", values),
        unmatched=None if table.delete_before is None else RowClause(),
    )
