"""Logical types in Spark's words, identifiers, and the steps from one table schema to another.

Every identifier that reaches SQL or a column expression passes `quote`, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, types
from pyspark.sql import functions as F

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind, LogicalType, decimal, widens

SEQ = "_tl_seq"
TS = "_tl_ts"
OVERFLOW = "_tl_overflow"
PENDING = "_tl_pending"
OP = "_tl_op"
UNCHANGED = "_tl_unchanged"
BEFORE = "_tl_before_"

STRING_MAP = types.MapType(types.StringType(), types.StringType())
STRING_LIST = types.ArrayType(types.StringType())
WAREHOUSE_COLUMNS: Mapping[str, types.DataType] = {
    SEQ: types.LongType(),
    TS: types.TimestampType(),
    OVERFLOW: STRING_MAP,
    PENDING: STRING_LIST,
}
"""What every warehouse table has after the source's columns."""

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
    """The Spark type that holds every value of ``logical`` unaltered."""
    if logical.kind is Kind.DECIMAL:
        return types.DecimalType(logical.precision, logical.scale)
    return _SPARK[logical.kind]


def quote(name: str) -> str:
    """``name`` as one identifier of Spark SQL and of column expressions."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """``text`` as a string literal of Spark SQL (its backslash escapes included)."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def column(name: str, *, of: str | None = None) -> Column:
    """The column called exactly ``name``, of the relation with alias ``of``."""
    return F.col(quote(name) if of is None else f"{of}.{quote(name)}")


def part_schema(schema: TableSchema, *, moved: bool) -> types.StructType:
    """The columns of a part as they are read; ``moved``: with before-keys."""
    fields = [
        types.StructField(SEQ, types.LongType()),
        types.StructField(OP, types.StringType()),
        types.StructField(TS, types.TimestampType()),
        *(types.StructField(c.name, spark_type(c.logical)) for c in schema.columns),
        types.StructField(UNCHANGED, STRING_LIST),
        types.StructField(OVERFLOW, STRING_MAP),
    ]
    if moved:
        fields += [
            types.StructField(BEFORE + name, spark_type(schema.column(name).logical))
            for name in schema.key
        ]
    return types.StructType(fields)


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add ``name`` after column ``after`` (None: first); rows that exist hold NULL."""

    name: str
    data_type: types.DataType
    after: str | None


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Give ``name`` a wider type; every value stays."""

    name: str
    data_type: types.DataType


SchemaStep = AddColumn | WidenColumn


def schema_steps(target: types.StructType, schema: TableSchema) -> tuple[SchemaStep, ...]:
    """What makes a target with columns ``target`` able to hold ``schema``; () when it is.

    A column that the source dropped stays in the target: rows written later hold NULL there.
    A target column that is already as wide or wider is left alone, so that steps may repeat.
    Raises Misconfigured, naming the column, for a type that no value-preserving step reaches.
    """
    present = {field.name: field.dataType for field in target.fields}
    folded = {name.lower(): name for name in present}
    steps: list[SchemaStep] = []
    previous: str | None = None
    for wanted in schema.columns:
        data_type = spark_type(wanted.logical)
        has = present.get(wanted.name)
        if has is None:
            twin = folded.get(wanted.name.lower())
            if twin is not None:
                raise Misconfigured(
                    f"column {wanted.name!r} differs by case only from the warehouse's {twin!r}",
                    hint="drop or rename that column in the warehouse table",
                )
            steps.append(AddColumn(wanted.name, data_type, previous))
        elif has != data_type:
            held = _logical(has)
            if held is not None and widens(wanted.logical, held):
                previous = wanted.name
                continue
            if held is None or not widens(held, wanted.logical):
                raise Misconfigured(
                    f"column {wanted.name!r} is {has.simpleString()} in the warehouse and"
                    f" {data_type.simpleString()} at the source",
                    hint="remove the warehouse table's directory to have it built anew",
                )
            steps.append(WidenColumn(wanted.name, data_type))
        previous = wanted.name
    return tuple(steps)


def _logical(data_type: types.DataType) -> LogicalType | None:
    """The logical type whose values ``data_type`` holds; None for a type that is not ours."""
    if isinstance(data_type, types.DecimalType):
        return decimal(data_type.precision, data_type.scale)
    kinds = [kind for kind, known in _SPARK.items() if known == data_type]
    return LogicalType(kinds[0]) if kinds else None
