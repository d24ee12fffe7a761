"""The types that targets have for the logical types, by the names that readers have for them."""

from __future__ import annotations

from collections.abc import Mapping

from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.target_url import BIGQUERY, ICEBERG
from tideline.contract.types import Kind, LogicalType

_SPARK: Mapping[Kind, str] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT8: "tinyint",
    Kind.INT16: "smallint",
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.STRING: "string",
    Kind.BINARY: "binary",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIMESTAMP_NTZ: "timestamp_ntz",
}
_BIGQUERY: Mapping[Kind, str] = {
    Kind.BOOLEAN: "BOOL",
    Kind.INT8: "INT64",
    Kind.INT16: "INT64",
    Kind.INT32: "INT64",
    Kind.INT64: "INT64",
    Kind.FLOAT32: "FLOAT64",
    Kind.FLOAT64: "FLOAT64",
    Kind.STRING: "STRING",
    Kind.BINARY: "BYTES",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMP_NTZ: "DATETIME",
}
_NAMES: Mapping[str, Mapping[Kind, str]] = {
    DEFAULT_FORMAT: _SPARK,
    # Iceberg has no whole numbers below 32 bits.
    ICEBERG: {**_SPARK, Kind.INT8: "int", Kind.INT16: "int"},
    BIGQUERY: _BIGQUERY,
}
_NUMERIC_SCALE, _NUMERIC_DIGITS = 9, 29


def target_type(logical: LogicalType, table_format: str) -> str:
    """Return the name of the type that holds values of ``logical`` in tables of ``table_format``:
    as Spark's SQL shows it, or BigQuery's."""
    if logical.kind is not Kind.DECIMAL:
        return _NAMES[table_format][logical.kind]
    precision, scale = logical.precision, logical.scale
    if table_format != BIGQUERY:
        return f"decimal({precision},{scale})"
    # https://cloud.google.com/bigquery/docs/reference/standard-sql/data-types#parameterized_decimal_type
    fits = scale <= _NUMERIC_SCALE and precision - scale <= _NUMERIC_DIGITS
    return f"{'NUMERIC' if fits else 'BIGNUMERIC'}({precision}, {scale})"
