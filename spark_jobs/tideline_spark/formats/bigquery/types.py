"""Columns of Spark's as BigQuery has them, and back.

https://cloud.google.com/bigquery/docs/reference/standard-sql/data-types
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, types
from pyspark.sql import functions as F

from tideline.contract.errors import Misconfigured
from tideline_spark.dialects.bigquery import TEXTS, decimal_type
from tideline_spark.schemas import STRING_LIST, STRING_MAP
from tideline_spark.schemas import column as col

_TYPES: Mapping[type[types.DataType], str] = {
    types.BooleanType: "BOOL",
    types.ByteType: "INT64",
    types.ShortType: "INT64",
    types.IntegerType: "INT64",
    types.LongType: "INT64",
    types.FloatType: "FLOAT64",
    types.DoubleType: "FLOAT64",
    types.StringType: "STRING",
    types.BinaryType: "BYTES",
    types.DateType: "DATE",
    types.TimestampType: "TIMESTAMP",
    types.TimestampNTZType: "DATETIME",
}
_SPARK: Mapping[str, types.DataType] = {
    "BOOLEAN": types.BooleanType(),
    "BOOL": types.BooleanType(),
    "INTEGER": types.LongType(),
    "INT64": types.LongType(),
    "FLOAT": types.DoubleType(),
    "FLOAT64": types.DoubleType(),
    "STRING": types.StringType(),
    "BYTES": types.BinaryType(),
    "DATE": types.DateType(),
    "TIMESTAMP": types.TimestampType(),
    "DATETIME": types.TimestampNTZType(),
}
"""By the names that its API has, which are older than those of its SQL."""
_DECIMALS = ("NUMERIC", "BIGNUMERIC", "DECIMAL", "BIGDECIMAL")
_NAME_MAX = 300
_REFUSED = re.compile(r"""[!"$()*,./;?@\[\\\]^`{}~\x00-\x1f]""")
_RESERVED = (
    "_TABLE_", "_FILE_", "_PARTITION", "_ROW_TIMESTAMP", "__ROOT__", "_COLIDENTIFIER", "_CHANGE_",
)  # fmt: skip


def bigquery_type(data_type: types.DataType) -> str:
    """Return the type that holds every value of ``data_type``, as SQL names it."""
    if isinstance(data_type, types.DecimalType):
        return decimal_type(data_type.precision, data_type.scale)
    if data_type == STRING_MAP:
        return TEXTS
    if isinstance(data_type, types.ArrayType):
        return f"ARRAY<{bigquery_type(data_type.elementType)}>"
    return _TYPES[type(data_type)]


def spark_type(field: Any, known: types.DataType | None) -> types.DataType:
    """Return the type of a column of Google's schema: ``known``, that we made it with, where it
    still is that one.

    Raises Misconfigured for a type that we do not make.
    """
    if known is not None and _is(field, known):
        return known
    if field.mode == "REPEATED":
        if field.field_type == "STRING":
            return STRING_LIST
        if field.field_type in ("RECORD", "STRUCT"):
            return STRING_MAP
    elif field.field_type in _DECIMALS:
        return types.DecimalType(field.precision or 38, field.scale or 9)
    elif field.field_type in _SPARK:
        return _SPARK[field.field_type]
    raise Misconfigured(
        f"column {field.name!r} is {field.field_type} in BigQuery, which is no type of ours",
        hint="someone else changed it there: change it back, or remove the table and merge again",
    )


def _is(field: Any, known: types.DataType) -> bool:
    name = bigquery_type(known)
    if field.mode == "REPEATED":
        repeated = {"STRING": "ARRAY<STRING>", "RECORD": TEXTS, "STRUCT": TEXTS}
        return repeated.get(field.field_type) == name
    if isinstance(known, types.DecimalType):
        return bool(field.field_type == name.partition("(")[0]) and field.precision in (
            None,
            known.precision,
        )
    return field.field_type in _SPARK and _TYPES.get(type(_SPARK[field.field_type])) == name


def check_names(schema: types.StructType) -> None:
    """Raise Misconfigured for a column's name that BigQuery refuses, or twice but for its case.

    https://cloud.google.com/bigquery/docs/schemas#column_names
    """
    seen: dict[str, str] = {}
    for name in schema.names:
        refused = _REFUSED.search(name) or len(name) > _NAME_MAX
        if refused or name.upper().startswith(_RESERVED):
            raise Misconfigured(
                f"BigQuery has no columns of the name {name!r}",
                hint="rename it at the source, or set another format for its table",
            )
        twin = seen.setdefault(name.lower(), name)
        if twin != name:
            raise Misconfigured(
                f"columns {twin!r} and {name!r} differ by case only, which BigQuery does not have",
                hint="rename one at the source, or set another format for their table",
            )


def check_key(schema: types.StructType, key: Collection[str]) -> None:
    """Raise Misconfigured for a key that BigQuery does not find again: no NaN equals another there,
    so that a MERGE would add its row each time."""
    for name in key:
        if isinstance(schema[name].dataType, types.FloatType | types.DoubleType):
            raise Misconfigured(
                f"the key's column {name!r} has floating-point numbers, by which BigQuery does not"
                " find every row",
                hint="keep this table in another format (format, in the table's section)",
            )


def to_bigquery(name: str, data_type: types.DataType) -> Column:
    """Return a column as it is written to Parquet for BigQuery: a map as its entries."""
    return F.map_entries(col(name)) if data_type == STRING_MAP else col(name)


def from_bigquery(name: str, data_type: types.DataType) -> Column:
    """Return a column that was read from BigQuery, where no array is NULL, in Spark's type."""
    value = col(name)
    if data_type == STRING_MAP:
        value = F.when(F.size(value) > 0, F.map_from_entries(value))
    elif isinstance(data_type, types.ArrayType):
        value = F.when(F.size(value) > 0, value)
    return value.cast(data_type).alias(name)
