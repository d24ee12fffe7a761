"""Compares a table with a copy of it in another format, row for row and column for column.

Rows are counted: as often as one side has a row, the other must have it, with every column that
Tideline adds. No value leaves this module.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F

from tideline_spark.schemas import column as col
from tideline_spark.working_columns import ROW

MISSING_ROWS = "rows missing"
"""Rows that the copy lacks."""
EXTRA_ROWS = "rows extra"
"""Rows that only the copy has."""
OTHER_COLUMNS = "columns different"
"""Columns that one side lacks, or has in a type that is not the other's."""

_SIGN = "_tl_sign"
_SUM = "_tl_sum"
_WHOLE = (types.ByteType, types.ShortType, types.IntegerType)


def row_differences(
    copy: DataFrame, original: DataFrame, apart: Collection[str] = ()
) -> Mapping[str, int]:
    """Count rows by kind of difference; kinds without any are left out. Columns ``apart`` are not
    compared. Where the columns differ, rows are not looked at."""
    columns = [_columns(one, apart) for one in (copy, original)]
    names = sorted(columns[0].keys() | columns[1].keys())
    different = [name for name in names if not _alike(*(one.get(name) for one in columns))]
    if different:
        return {OTHER_COLUMNS: len(different)}
    copied, origin = (
        side.select(
            F.struct(
                *(
                    _comparable(col(name).cast(types_of[name]), types_of[name]).alias(f"c{at}")
                    for at, name in enumerate(names)
                )
            ).alias(ROW),
            F.lit(sign).alias(_SIGN),
        )
        for side, types_of, sign in zip((copy, original), columns, (1, -1), strict=True)
    )
    sums = copied.unionByName(origin).groupBy(ROW).agg(F.sum(_SIGN).alias(_SUM))
    counts = sums.agg(
        F.sum(F.greatest(-col(_SUM), F.lit(0))).alias(MISSING_ROWS),
        F.sum(F.greatest(col(_SUM), F.lit(0))).alias(EXTRA_ROWS),
    ).collect()[0]
    return {kind: int(count) for kind, count in counts.asDict().items() if count}


def held_alike(held: types.DataType, wanted: types.DataType) -> bool:
    """Return whether a column of type ``held`` may stand for one of ``wanted``: a format may lack
    small whole numbers."""
    return _alike(_widened(held), _widened(wanted))


def _columns(rows: DataFrame, apart: Collection[str]) -> dict[str, types.DataType]:
    fields = rows.schema.fields
    return {one.name: _widened(one.dataType) for one in fields if one.name not in apart}


def _alike(one: types.DataType | None, other: types.DataType | None) -> bool:
    """Return whether the types are the same, whatever may be NULL in them."""
    return None not in (one, other) and one.simpleString() == other.simpleString()  # type: ignore[union-attr]


def _widened(kind: types.DataType) -> types.DataType:
    """Return a type with the whole number that every format has."""
    return types.LongType() if isinstance(kind, _WHOLE) else kind


def _comparable(value: Column, kind: types.DataType) -> Column:
    """Return a value that rows can be grouped by: a map as its entries, in the order of keys."""
    return F.array_sort(F.map_entries(value)) if isinstance(kind, types.MapType) else value
