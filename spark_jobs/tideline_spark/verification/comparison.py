"""Compares the source's rows with the target's, column by column. Pure.

Values are compared as stored: NULL equals NULL only, NaN equals NaN, and zeros of different sign
differ. A value that its type cannot hold is compared as the source's text, in ``_tl_overflow``.
*Pending* columns of a row (still to be read from the source) are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from tideline.contract.part import DUMPED, LOW, OP, OVERFLOW, PENDING, SEQ
from tideline.contract.schema import TableSchema
from tideline_spark.formats.statements import SOURCE as _S
from tideline_spark.formats.statements import TARGET as _T
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import ROWS

KIND = "_tl_kind"
COLUMNS = "_tl_columns"
WAITS = "_tl_waits"
"""Column: the row has pending columns."""
PAIR = "_tl_pair"
"""Column: both sides have the row."""
MISSING, EXTRA, DIFFERENT, SEQUENCE = "missing", "extra", "different", "sequence"

_C = "_tl_changed"
_THERE = "_tl_there"
_FLOATS = (types.FloatType, types.DoubleType)


@dataclass(frozen=True, slots=True)
class Compared:
    """The scope of a comparison: ``columns`` of ``schema`` that the target has. A ``_tl_seq`` above
    ``applied_seq`` is damage. ``low_seq``: keys touched after it are set aside, where a chunk has
    no such sequence itself. ``both``: also look for rows that only the target has."""

    schema: TableSchema
    columns: tuple[str, ...]
    applied_seq: int
    low_seq: int
    both: bool


def compare(
    source: DataFrame, target: DataFrame, touched: DataFrame | None, wanted: Compared
) -> DataFrame:
    """Return a row for each pair of rows with equal keys and each row of one side alone: the key
    columns, `KIND` (NULL: no difference), `COLUMNS` that differ, `PAIR`, `WAITS`.

    Rows whose keys are ``touched`` are left out.
    """
    names = wanted.schema.key
    same = _same_key(names, _S, _T)
    held = target.withColumn(_THERE, F.lit(True)).alias(_T)
    joined = source.alias(_S).join(held, same, "full" if wanted.both else "left")
    if touched is not None:
        changing = touched.alias(_C)
        key = [F.coalesce(col(n, of=_S), col(n, of=_T)).eqNullSafe(col(n, of=_C)) for n in names]
        since = F.coalesce(col(LOW, of=_S), F.lit(wanted.low_seq))
        joined = joined.join(changing, _all([*key, col(SEQ, of=_C) > since]), "left_anti")
    present = F.coalesce(col(OP, of=_S) == DUMPED, F.lit(False))
    there = col(_THERE, of=_T).isNotNull()
    seq = col(SEQ, of=_T)
    columns = _different(target.schema, source.schema, wanted)
    kind = (
        F.when(present & ~there, MISSING)
        .when(~present & there, EXTRA)
        .when(there & (seq.isNull() | (seq > wanted.applied_seq)), SEQUENCE)
        .when(there & (F.size(columns) > 0), DIFFERENT)
    )
    return joined.select(
        *(F.coalesce(col(n, of=_S), col(n, of=_T)).alias(n) for n in names),
        kind.alias(KIND),
        F.when(present & there, columns).alias(COLUMNS),
        (present & there).alias(PAIR),
        (there & col(PENDING, of=_T).isNotNull()).alias(WAITS),
    )


def changed_keys(
    source: DataFrame, touched: DataFrame, wanted: Compared, *, asked_only: bool
) -> DataFrame:
    """Return the ``touched`` keys that `compare` leaves out, with or without a row, and (`PAIR`)
    whether ``source`` has one; ``asked_only``: only keys that the source has or requests."""
    names = wanted.schema.key
    same = _same_key(names, _C, _S)
    joined = touched.alias(_C).join(source.alias(_S), same, "inner" if asked_only else "left")
    since = F.coalesce(col(LOW, of=_S), F.lit(wanted.low_seq))
    return joined.where(col(SEQ, of=_C) > since).select(
        *(col(n, of=_C).alias(n) for n in names),
        F.coalesce(col(OP, of=_S) == DUMPED, F.lit(False)).alias(PAIR),
    )


def twins(target: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the keys that more than one row of ``target`` has."""
    counted = target.groupBy(*(col(name) for name in names)).agg(F.count(F.lit(1)).alias(ROWS))
    return counted.where(col(ROWS) > 1).drop(ROWS)


def _different(target: types.StructType, source: types.StructType, wanted: Compared) -> Column:
    """Return the names of the columns whose values differ; built only for a row that has any."""
    plain = [name for name in wanted.columns if name not in wanted.schema.key]
    none = F.array().cast(types.ArrayType(types.StringType()))
    if not plain:
        return none
    differs = {name: _differs(name, source[name].dataType, target[name].dataType) for name in plain}
    listed = F.array(*(F.when(one, F.lit(name)) for name, one in differs.items()))
    return F.when(_any(list(differs.values())), F.array_compact(listed)).otherwise(none)


def _differs(name: str, given: types.DataType, held: types.DataType) -> Column:
    source, target = col(name, of=_S), col(name, of=_T)
    text = F.try_element_at(col(OVERFLOW, of=_S), F.lit(name))
    kept = F.try_element_at(col(OVERFLOW, of=_T), F.lit(name))
    pending = F.coalesce(F.array_contains(col(PENDING, of=_T), F.lit(name)), F.lit(False))
    if given == held:
        unequal = ~source.eqNullSafe(target) | ~text.eqNullSafe(kept)
        if isinstance(given, _FLOATS):
            zero = F.coalesce(source == 0, F.lit(False))
            signs = source.cast("string") != target.cast("string")
            unequal = unequal | (zero & F.coalesce(signs, F.lit(True)))
        return unequal & ~pending
    # The target's type differs: it is wider or, by the settings, still the previous one.
    fitting = source.try_cast(held)
    lost = source.isNotNull() & fitting.isNull()
    as_text = F.when(lost, source.cast("string")).otherwise(text)
    unequal = ~fitting.eqNullSafe(target) | ~as_text.eqNullSafe(kept)
    return unequal & ~pending


def _same_key(names: Sequence[str], one: str, other: str) -> Column:
    return _all([col(name, of=one) == col(name, of=other) for name in names])


def _all(conditions: list[Column]) -> Column:
    return reduce(Column.__and__, conditions)


def _any(conditions: list[Column]) -> Column:
    return reduce(Column.__or__, conditions)
