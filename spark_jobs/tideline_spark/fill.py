"""Prepares folded rows for the target whose columns the log did not carry.

A value that no row of the range supplies is in the target. A row that kept its key gets it in the
MERGE itself. This module has the other two cases: a new target has no values, and a moved row finds
them under its old key.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.part import OVERFLOW, PENDING, SEQ, TS
from tideline_spark.fold import FROM, MISSING, UNKNOWN, Shape, wanted
from tideline_spark.schemas import STRING_LIST, STRING_MAP
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import GONE

_OWN = "_tl_own"
_OLD = "_tl_old"


def initial_rows(folded: DataFrame, shape: Shape) -> DataFrame:
    """Return the live rows in the warehouse's columns, for a new target."""
    pending = F.lit(None).cast(STRING_LIST)
    if shape.fillable:
        pending = wanted(F.coalesce(col(MISSING), col(UNKNOWN)), shape)
    return folded.where(~col(GONE)).select(
        *(col(name) for name in shape.schema.column_names),
        col(SEQ),
        col(TS),
        col(OVERFLOW),
        pending.alias(PENDING),
    )


def columns_of_moved(shape: Shape) -> list[str]:
    """Return the columns that `fill_moved` reads of the target."""
    return [*shape.schema.key, *shape.fillable, SEQ, OVERFLOW, PENDING]


def fill_moved(folded: DataFrame, target: DataFrame, shape: Shape) -> DataFrame:
    """Fill moved rows of ``folded`` with values from ``target``'s rows of their old keys.

    Columns that are absent or pending there go to `MISSING`; `UNKNOWN` is left to rows that kept
    their key. There is still one row per key, even when a damaged target holds a key twice.
    """
    same_key = [col(FROM, of=_OWN)[name] == col(name, of=_OLD) for name in shape.schema.key]
    condition = same_key[0]
    for term in same_key[1:]:
        condition = condition & term
    joined = folded.alias(_OWN).join(target.alias(_OLD), condition, "left")
    columns = [_filled(name, shape).alias(name) for name in folded.columns]
    return joined.select(*columns).dropDuplicates(list(shape.schema.key))


def twins(folded: DataFrame, target: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys that a damaged ``target`` holds more than once and ``folded`` can rewrite.

    A MERGE would overwrite each of these rows and leave as many.
    """
    whole = ~col(GONE) & (col(UNKNOWN).isNull() if shape.fillable else F.lit(True))
    names = list(shape.schema.key)
    written = folded.where(whole).select(*(col(name) for name in names))
    held = target.select(*(col(name) for name in names)).join(written, names, "left_semi")
    return held.groupBy(*shape.key).agg(F.count(F.lit(1)).alias("rows")).where("rows > 1")


def _filled(name: str, shape: Shape) -> Column:
    own = col(name, of=_OWN)
    moved = col(FROM, of=_OWN).isNotNull()
    lacks = _or_empty(col(UNKNOWN, of=_OWN))
    if name in shape.fillable:
        return F.when(moved & F.array_contains(lacks, F.lit(name)), col(name, of=_OLD)).otherwise(
            own
        )
    if name == UNKNOWN:
        return F.when(~moved, own)
    if name == MISSING:
        found = col(SEQ, of=_OLD).isNotNull()
        pending = F.array_intersect(lacks, _or_empty(col(PENDING, of=_OLD)))
        missing = _or_empty(wanted(F.when(found, pending).otherwise(lacks), shape))
        return F.when(moved, F.when(F.size(missing) > 0, missing)).otherwise(own)
    if name == OVERFLOW:
        theirs = F.map_filter(
            _or_no_texts(col(OVERFLOW, of=_OLD)), lambda text, _: F.array_contains(lacks, text)
        )
        texts = F.map_concat(_or_no_texts(own), theirs)
        return F.when(moved & (F.size(texts) > 0), texts).otherwise(own)
    return own


def _or_empty(names: Column) -> Column:
    return F.coalesce(names, F.array().cast(STRING_LIST))


def _or_no_texts(texts: Column) -> Column:
    return F.coalesce(texts, F.create_map().cast(STRING_MAP))
