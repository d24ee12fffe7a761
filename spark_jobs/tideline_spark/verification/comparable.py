"""Compares the present state of a rebuilt table with that of the live one.

The present state depends on the mode: the rows, those not deleted, the open versions, or the result
of the change log. Rows with a value that is still to be read are set aside. Differences are counted
by kind; no value leaves this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.change_log import BEFORE_PREFIX, OPERATION, SEQUENCE
from tideline.contract.modes import Mode
from tideline.contract.part import BEFORE, OP, OVERFLOW, PENDING, SEQ, TS, UNCHANGED, UPDATED
from tideline.contract.schema import TableSchema
from tideline_spark.fold import MISSING, UNKNOWN, Shape, fold
from tideline_spark.modes.append import TRUNCATE, WORDS
from tideline_spark.modes.counted import digest
from tideline_spark.modes.soft_deletes import DELETED
from tideline_spark.schemas import STRING_MAP, spark_type
from tideline_spark.schemas import column as col
from tideline_spark.version_context import CURRENT
from tideline_spark.working_columns import GONE, ROW

MISSING_KEYS = "missing"
"""Keys that the rebuilt table has and the live one lacks."""
EXTRA_KEYS = "extra"
"""Keys that only the live table has."""
TWICE = "twice"
"""Keys that a table has more than once."""
DIFFERENT = "different"
"""Keys whose values differ."""
NOT_COMPARABLE = "not comparable"
"""A change log and the counted rows of a table without a key: they cannot be compared."""
SET_ASIDE = "set aside"
"""Keys in both tables with a value that is still to be read: no difference."""

_OPEN = "_tl_open"
_REBUILT = "_tl_rebuilt"


@dataclass(frozen=True, slots=True)
class Side:
    """A table's rows and its mode."""

    rows: DataFrame
    mode: Mode


def differences(
    rebuilt: Side, live: Side, schema: TableSchema, delete_before: int | None
) -> Mapping[str, int]:
    """Count keys by kind of difference; kinds without any are left out.

    ``delete_before``: where a finished full dump began; older keys of a change log are gone.
    """
    if not schema.key:
        return _counts_apart(rebuilt, live, schema)
    both = (
        _present(rebuilt, schema, delete_before)
        .withColumn(_REBUILT, F.lit(True))
        .unionByName(_present(live, schema, delete_before).withColumn(_REBUILT, F.lit(False)))
    )
    mine, theirs = col(_REBUILT), ~col(_REBUILT)
    grouped = both.groupBy(*(col(name) for name in schema.key)).agg(
        F.count_if(mine).alias("mine"),
        F.count_if(theirs).alias("theirs"),
        F.max(F.when(mine, col(ROW))).alias("my_row"),
        F.max(F.when(theirs, col(ROW))).alias("their_row"),
        F.bool_or(col(_OPEN)).alias("open"),
    )
    in_both = (col("mine") > 0) & (col("theirs") > 0)
    counts = grouped.agg(
        F.count_if(col("theirs") == 0).alias(MISSING_KEYS),
        F.count_if(col("mine") == 0).alias(EXTRA_KEYS),
        F.count_if((col("mine") > 1) | (col("theirs") > 1)).alias(TWICE),
        F.count_if(in_both & ~col("open") & ~col("my_row").eqNullSafe(col("their_row"))).alias(
            DIFFERENT
        ),
        F.count_if(in_both & col("open")).alias(SET_ASIDE),
    ).collect()[0]
    return {kind: int(count) for kind, count in counts.asDict().items() if count}


def _counts_apart(rebuilt: Side, live: Side, schema: TableSchema) -> Mapping[str, int]:
    """Count the rows that only one side of a table without a key has, equal ones included."""
    if (rebuilt.mode is Mode.APPEND) != (live.mode is Mode.APPEND):
        return {NOT_COMPARABLE: 1}
    numbered = [col(SEQUENCE)] if live.mode is Mode.APPEND else []
    both = [
        side.rows.select(
            digest(
                schema.columns,
                {one.name: _value(one.name, side.rows, schema) for one in schema.columns},
                col(OVERFLOW),
            ).alias(ROW),
            *numbered,
            F.lit(sign).alias("sign"),
        )
        for side, sign in ((rebuilt, 1), (live, -1))
    ]
    sums = both[0].unionByName(both[1]).groupBy(ROW, *numbered).agg(F.sum("sign").alias("sum"))
    counts = sums.agg(
        F.sum(F.greatest(col("sum"), F.lit(0))).alias(MISSING_KEYS),
        F.sum(F.greatest(-col("sum"), F.lit(0))).alias(EXTRA_KEYS),
    ).collect()[0]
    return {kind: int(count) for kind, count in counts.asDict().items() if count}


def _present(side: Side, schema: TableSchema, delete_before: int | None) -> DataFrame:
    """Return the keys, all other values as one comparable value, and whether some are pending."""
    rows, mode = side.rows, side.mode
    if mode is Mode.APPEND:
        rows = _led_to(rows, schema, delete_before)
    if mode is Mode.SOFT_DELETES:
        rows = rows.where(~F.coalesce(col(DELETED), F.lit(False)))
    if mode is Mode.HISTORY:
        rows = rows.where(F.coalesce(col(CURRENT), F.lit(False)))
    names = list(schema.column_names)
    overflowed = F.coalesce(col(OVERFLOW), F.create_map().cast(STRING_MAP))
    texts = F.array_sort(F.map_entries(F.map_filter(overflowed, lambda name, _: name.isin(names))))
    values = [
        _value(name, rows, schema).alias(f"c{at}")
        for at, name in enumerate(schema.column_names)
        if name not in schema.key
    ]
    return rows.select(
        *(col(name) for name in schema.key),
        F.struct(*values, texts.alias("texts")).alias(ROW),
        col(PENDING).isNotNull().alias(_OPEN),
    )


def _value(name: str, rows: DataFrame, schema: TableSchema) -> Column:
    """Return a column in the source's type; NULL for one that the table lacks."""
    data_type = spark_type(schema.column(name).logical)
    return (col(name) if name in rows.columns else F.lit(None)).cast(data_type)


def _led_to(log: DataFrame, schema: TableSchema, delete_before: int | None) -> DataFrame:
    """Fold a change log's changes into the rows that they lead to."""
    newest = log.where(col(OPERATION) == TRUNCATE).agg(F.max(col(SEQUENCE))).collect()[0][0]
    lacking = log.select(F.explode(col(UNCHANGED)).alias("name")).distinct().collect()
    names = {row["name"] for row in lacking}
    letters = F.create_map(*(F.lit(t) for letter, word in WORDS.items() for t in (word, letter)))
    moved = col(OPERATION) == WORDS[UPDATED]
    changes = log.where(col(OPERATION) != TRUNCATE).select(
        *(col(name) for name in schema.column_names if name in log.columns),
        col(SEQUENCE).alias(SEQ),
        letters[col(OPERATION)].alias(OP),
        col(TS),
        col(UNCHANGED),
        col(OVERFLOW),
        *(
            F.when(moved, col(BEFORE_PREFIX + name)).alias(BEFORE + name)
            for name in schema.key
        ),
    )  # fmt: skip
    known = tuple(n for n in schema.column_names if n in log.columns)
    own = tuple(one for one in schema.columns if one.name in known)
    fillable = tuple(n for n in known if n in names and n not in schema.key)
    held = TableSchema(schema.table, own, schema.key)
    shape = Shape(held, moved=True, fillable=fillable, truncate=newest, delete_before=delete_before)
    rows = fold(changes, shape).where(~col(GONE))
    if not fillable:
        return rows.withColumn(PENDING, F.lit(None).cast("array<string>"))
    return rows.withColumn(PENDING, F.coalesce(col(MISSING), col(UNKNOWN)))
