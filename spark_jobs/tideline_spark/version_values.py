"""Fills values that the log did not carry in the rows of a range from earlier rows. Pure."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.part import OP, OVERFLOW, PENDING, SEQ, TS, UNCHANGED
from tideline_spark.schemas import STRING_LIST, STRING_MAP
from tideline_spark.schemas import column as col
from tideline_spark.version_context import (
    END,
    FROM,
    FROM_SEQ,
    NEXT,
    NEXT_TS,
    VersionContext,
    gone,
)
from tideline_spark.working_columns import (
    ARRIVED,
    LIFETIME,
    LIFETIME_START,
    MOVED_AWAY,
    MOVED_IN,
    MOVED_OUT,
    known_column,
)

_HOPS_MAX = 10_000
_PARENT_MOVED_OUT = "_tl_parent_moved_out"
_PARENT_MOVED_IN = "_tl_parent_moved_in"


def filled(rows: DataFrame, context: VersionContext) -> DataFrame:
    """Fill the rows' columns with every known value; list the other columns in PENDING."""
    nothing = F.lit(None).cast(STRING_LIST)
    if not context.fillable:
        return rows.withColumn(PENDING, nothing).drop(UNCHANGED, ARRIVED)
    in_lifetime = Window.partitionBy(*context.key, col(LIFETIME)).orderBy(col(SEQ))
    for at, name in enumerate(context.fillable):
        known = F.when(_supplies(name), _value(name))
        rows = rows.withColumn(known_column(at), F.last(known, True).over(in_lifetime))
    if context.moved:
        rows = _inherit(rows, context)
    absent = F.filter(
        F.array(
            *(
                F.when(col(known_column(at)).isNull(), F.lit(name)).otherwise(
                    F.lit(None).cast("string")
                )
                for at, name in enumerate(context.fillable)
            )
        ),
        lambda name: name.isNotNull(),
    )
    places = {name: at for at, name in enumerate(context.fillable)}
    kept = [
        (col(known_column(places[name]))["value"] if name in places else col(name)).alias(name)
        for name in context.schema.column_names
    ]
    return rows.select(
        *kept,
        *(col(name) for name in (SEQ, OP, TS, FROM_SEQ, FROM, NEXT, NEXT_TS, END, LIFETIME_START)),
        _overflow(context).alias(OVERFLOW),
        F.when(F.size(absent) > 0, absent).cast(STRING_LIST).alias(PENDING),
    )


def _supplies(name: str) -> Column:
    lacks = F.array_contains(col(UNCHANGED), F.lit(name))
    return ~gone() & ~F.coalesce(lacks, F.lit(False))


def _value(name: str) -> Column:
    """Return a known value as a struct, so that a known NULL is not unknown."""
    return F.struct(col(name).alias("value"), col(OVERFLOW)[name].alias("text"))


def _inherit(rows: DataFrame, context: VersionContext) -> DataFrame:
    """Take what a key lifetime does not know from the one that moved here, and so on, back to the
    first."""
    names = [known_column(at) for at in range(len(context.fillable))]
    keys = list(context.schema.key)
    lifetimes = rows.groupBy(*context.key, col(LIFETIME)).agg(
        F.max(F.when(col(ARRIVED) & col(LIFETIME_START), col(SEQ))).alias(MOVED_IN),
        F.max(F.when(col(OP) == MOVED_AWAY, col(SEQ))).alias(MOVED_OUT),
        *(F.max_by(col(name), col(SEQ)).alias(name) for name in names),
    )
    lifetimes = lifetimes.localCheckpoint()
    parents = lifetimes.where(col(MOVED_OUT).isNotNull()).select(
        col(MOVED_OUT).alias(_PARENT_MOVED_OUT),
        col(MOVED_IN).alias(_PARENT_MOVED_IN),
        *(col(name).alias(f"{name}_there") for name in names),
    )
    # A key lifetime inherits what was known before it began, not values of its own later rows.
    heirs = lifetimes.where(col(MOVED_IN).isNotNull()).select(
        *(col(name) for name in (*keys, LIFETIME, MOVED_IN)),
        *(F.lit(None).cast(lifetimes.schema[name].dataType).alias(name) for name in names),
    )
    for _ in range(_HOPS_MAX):
        heirs = (
            heirs.join(parents, col(MOVED_IN) == col(_PARENT_MOVED_OUT), "left")
            .select(
                *(col(name) for name in (*keys, LIFETIME)),
                col(_PARENT_MOVED_IN).alias(MOVED_IN),
                *(F.coalesce(col(name), col(f"{name}_there")).alias(name) for name in names),
            )
            .localCheckpoint()
        )
        lacking = F.lit(False)
        for name in names:
            lacking = lacking | col(name).isNull()
        if heirs.where(col(MOVED_IN).isNotNull() & lacking).isEmpty():
            break
    given = heirs.select(
        *(col(name).alias(f"_tl_heir_{at}") for at, name in enumerate((*keys, LIFETIME))),
        *(col(name).alias(f"{name}_there") for name in names),
    )
    same = F.lit(True)
    for at, name in enumerate((*keys, LIFETIME)):
        same = same & (col(name) == col(f"_tl_heir_{at}"))
    return rows.join(given, same, "left").select(
        *(col(name) for name in rows.columns if name not in names),
        *(F.coalesce(col(name), col(f"{name}_there")).alias(name) for name in names),
    )


def _overflow(context: VersionContext) -> Column:
    """Return the row's texts for columns that all rows carry, the known values' for the others."""
    names = F.array(*(F.lit(name) for name in context.fillable))
    own = F.map_filter(
        F.coalesce(col(OVERFLOW), F.create_map().cast(STRING_MAP)),
        lambda name, _: ~F.array_contains(names, name),
    )
    entries = F.array(
        *(
            F.struct(F.lit(name).alias("key"), col(known_column(at))["text"].alias("value"))
            for at, name in enumerate(context.fillable)
        )
    )
    filled = F.map_from_entries(F.filter(entries, lambda entry: entry["value"].isNotNull()))
    texts = F.map_concat(own, filled)
    return F.when(F.size(texts) > 0, texts)
