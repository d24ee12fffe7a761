"""``append``: the log of changes itself, one row for each, in batches. No row is ever changed.

A batch holds the changes of one merge; its number is the last manifest of that merge. A merge
overwrites the range of sequences that its plan covers, so that no change is there twice.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.change_log import BATCH, BEFORE_PREFIX, OPERATION, SEQUENCE
from tideline.contract.part import (
    BEFORE,
    CREATED,
    DELETED,
    DUMPED,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    SEQ,
    TS,
    TX,
    UNCHANGED,
    UPDATED,
)
from tideline.contract.schema import Column as TableColumn
from tideline.contract.table_layout import TableLayout
from tideline_spark.formats.state import RowCounts
from tideline_spark.modes.base import Work
from tideline_spark.schemas import column as col
from tideline_spark.schemas import quote, spark_type

_VIEW = "tideline_log"
WORDS = {CREATED: "insert", UPDATED: "update", DELETED: "delete", DUMPED: "dump"}
TRUNCATE = "truncate"


class Append:
    """One commit of new rows, partitioned by batch and ordered by sequence."""

    pends = False

    def commit(self, work: Work) -> RowCounts | None:
        table = work.table
        rows = _log(work).repartitionByRange(col(SEQUENCE)).sortWithinPartitions(col(SEQUENCE))
        work.before_commit()
        if table.create:
            rows.createOrReplaceTempView(_VIEW)
            return work.create(_VIEW, TableLayout(partition_by=(BATCH,)))
        covered = f"{quote(SEQUENCE)} > {table.from_seq} AND {quote(SEQUENCE)} <= {table.to_seq}"
        return work.target.overwrite(rows, covered, work.commit_metadata)

    def live(self) -> str:
        return "true"


def _log(work: Work) -> DataFrame:
    table = work.table
    changes = work.changes.where(col(SEQ) > F.lit(table.start_seq))
    word = F.create_map(*(F.lit(text) for pair in WORDS.items() for text in pair))
    rows = changes.select(
        F.lit(table.to_manifest).cast("long").alias(BATCH),
        col(SEQ).alias(SEQUENCE),
        word[col(OP)].alias(OPERATION),
        col(TX),
        col(TS),
        *(col(name) for name in table.schema.column_names),
        *(_before(one, work) for one in table.schema.columns),
        col(IMAGE),
        col(UNCHANGED),
        col(OVERFLOW),
        col(IMAGE_OVERFLOW),
    )
    return rows.unionByName(_truncates(work, rows)) if table.truncates else rows


def _before(column: TableColumn, work: Work) -> Column:
    """Return a column's value before the change; a key column has one even if it did not change."""
    name = column.name
    before = F.lit(None).cast(spark_type(column.logical))
    if BEFORE + name in work.changes.columns:
        before = col(BEFORE + name)
    if name in work.table.schema.key:
        before = F.when(col(OP).isin(UPDATED, DELETED), F.coalesce(before, col(name)))
    return before.alias(BEFORE_PREFIX + name)


def _truncates(work: Work, rows: DataFrame) -> DataFrame:
    table = work.table
    times = {end.seq: end.time_us for end in table.ends}
    found = (
        F.struct(
            F.lit(seq).cast("long").alias("seq"), F.lit(times.get(seq)).cast("long").alias("at")
        )
        for seq in table.truncates
    )
    given = work.session.range(1).select(F.inline(F.array(*found)))
    known = {
        BATCH: F.lit(table.to_manifest).cast("long"),
        SEQUENCE: col("seq"),
        OPERATION: F.lit(TRUNCATE),
        TS: F.timestamp_micros(col("at")),
    }
    return given.select(
        *(
            known.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in rows.schema.fields
        )
    )
