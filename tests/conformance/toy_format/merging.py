"""A merge of the toy format's: a join of both sides, of which every row is judged."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from tideline_spark.formats.statements import SOURCE, TARGET, RowClause, RowMerge
from tideline_spark.schemas import column as col

KIND = "_toy_kind"
"""What was done with a row."""
_HELD, _CAME = "_toy_held", "_toy_came"


def judged(held: DataFrame, rows: DataFrame, merge: RowMerge) -> DataFrame:
    """All rows of both sides as they are afterwards, and what was done with each."""
    ours = held.withColumn(_HELD, F.lit(True)).alias(TARGET)
    theirs = rows.withColumn(_CAME, F.lit(True)).alias(SOURCE)
    joined = ours.join(theirs, F.expr(merge.on), "full_outer")
    is_held, came = col(_HELD).isNotNull(), col(_CAME).isNotNull()
    steps = [(is_held & came & _applies(one), one, "updated") for one in merge.matched]
    if merge.inserted is not None:
        steps.append((~is_held & _applies(merge.inserted), merge.inserted, "inserted"))
    if merge.unmatched is not None:
        steps.append((~came & _applies(merge.unmatched), merge.unmatched, "updated"))
    kind = _first([(when, F.lit(_kind(clause, word))) for when, clause, word in steps])
    outcome = F.coalesce(kind, F.when(is_held, F.lit("left")).otherwise(F.lit("away")))
    columns = [
        _first(
            [(when, _value(clause, one)) for when, clause, _ in steps],
            otherwise=col(one.name, of=TARGET),
        ).alias(one.name)
        for one in held.schema.fields
    ]
    return joined.select(*columns, outcome.alias(KIND))


def _kind(clause: RowClause, word: str) -> str:
    return "deleted" if clause.values is None else word


def _applies(clause: RowClause) -> Column:
    return F.lit(True) if clause.when is None else F.coalesce(F.expr(clause.when), F.lit(False))


def _value(clause: RowClause, one: types.StructField) -> Column:
    if clause.values is None or one.name not in clause.values:
        return col(one.name, of=TARGET)
    return F.expr(clause.values[one.name]).cast(one.dataType)


def _first(cases: Sequence[tuple[Column, Column]], otherwise: Column | None = None) -> Column:
    """The value of the first condition that holds."""
    found = F.lit(None) if otherwise is None else otherwise
    for when, value in reversed(cases):
        found = F.when(when, value).otherwise(found)
    return found
