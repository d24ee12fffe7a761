"""Maps logical types to Spark types, and quotes identifiers.

Every identifier that reaches SQL or a column expression passes `quote`, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.part import (
    BEFORE,
    IMAGE,
    IMAGE_OVERFLOW,
    OP,
    OVERFLOW,
    PENDING,
    SEQ,
    TS,
    TX,
    UNCHANGED,
)
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind, LogicalType, decimal, parse_type

STRING_MAP = types.MapType(types.StringType(), types.StringType())
STRING_LIST = types.ArrayType(types.StringType())
WAREHOUSE_COLUMNS: Mapping[str, types.DataType] = {
    SEQ: types.LongType(),
    TS: types.TimestampType(),
    OVERFLOW: STRING_MAP,
    PENDING: STRING_LIST,
}
"""The columns of every warehouse table after the source's columns."""

_SPARK: Mapping[Kind, types.DataType] = {
    Kind.BOOLEAN: types.BooleanType(),
    Kind.INT8: types.ByteType(),
    Kind.INT16: types.ShortType(),
    Kind.INT32: types.IntegerType(),
    Kind.INT64: types.LongType(),
    Kind.FLOAT32: types.FloatType(),
    Kind.FLOAT64: types.DoubleType(),
    Kind.STRING: types.StringType(),
    Kind.BINARY: types.BinaryType(),
    Kind.DATE: types.DateType(),
    Kind.TIMESTAMP: types.TimestampType(),
    Kind.TIMESTAMP_NTZ: types.TimestampNTZType(),
}


def spark_type(logical: LogicalType) -> types.DataType:
    """Return the Spark type that holds every value of ``logical`` unaltered."""
    if logical.kind is Kind.DECIMAL:
        return types.DecimalType(logical.precision, logical.scale)
    return _SPARK[logical.kind]


def field_of(name: str, logical: str) -> types.StructField:
    """Return a column of the logical type that a document names."""
    return types.StructField(name, spark_type(parse_type(logical)))


def quote(name: str) -> str:
    """Quote ``name`` as one identifier of Spark SQL and of column expressions."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Quote ``text`` as a string literal of Spark SQL (its backslash escapes included)."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def column(name: str, *, of: str | None = None) -> Column:
    """Return the column called exactly ``name``, of the relation with alias ``of``."""
    return F.col(quote(name) if of is None else f"{of}.{quote(name)}")


def narrowed(
    rows: DataFrame, columns: Sequence[str], where: Sequence[str], among: DataFrame | None
) -> DataFrame:
    """Return what `Target.rows_of` does, of ``rows`` that Spark reads itself."""
    for condition in where:
        rows = rows.where(condition)
    if among is not None:
        rows = rows.join(among, among.columns, "left_semi")
    return rows.select(*(column(name) for name in columns))


def names_in(data_type: types.DataType) -> Iterator[str]:
    """Yield the names of all fields in ``data_type``, however deep."""
    if isinstance(data_type, types.StructType):
        for field in data_type.fields:
            yield field.name
            yield from names_in(field.dataType)
    elif isinstance(data_type, types.ArrayType):
        yield from names_in(data_type.elementType)


def part_schema(schema: TableSchema, *, moved: bool, log: bool = False) -> types.StructType:
    """Return the columns of a part to read; ``moved``: with before-keys; ``log``: with all that a
    part can have."""
    fields = [
        types.StructField(SEQ, types.LongType()),
        types.StructField(OP, types.StringType()),
        types.StructField(TS, types.TimestampType()),
        *(types.StructField(c.name, spark_type(c.logical)) for c in schema.columns),
        types.StructField(UNCHANGED, STRING_LIST),
        types.StructField(OVERFLOW, STRING_MAP),
    ]
    if moved or log:
        fields += [
            types.StructField(BEFORE + name, spark_type(schema.column(name).logical))
            for name in (schema.column_names if log else schema.key)
        ]
    if log:
        fields += [
            types.StructField(TX, types.LongType()),
            types.StructField(IMAGE, types.BooleanType()),
            types.StructField(IMAGE_OVERFLOW, STRING_MAP),
        ]
    return types.StructType(fields)


def no_rows(session: SparkSession, schema: types.StructType) -> DataFrame:
    """Return a frame without rows; Spark would start a Python worker for an empty list."""
    nothing = [F.lit(None).cast(one.dataType).alias(one.name) for one in schema.fields]
    return session.range(0).select(*nothing)


def logical_of(data_type: types.DataType) -> LogicalType | None:
    """Return the logical type whose values ``data_type`` holds; None for a type not ours."""
    if isinstance(data_type, types.DecimalType):
        return decimal(data_type.precision, data_type.scale)
    kinds = [kind for kind, known in _SPARK.items() if known == data_type]
    return LogicalType(kinds[0]) if kinds else None
