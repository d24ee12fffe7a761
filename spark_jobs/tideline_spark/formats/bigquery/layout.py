# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""Partitions, clusters and declared key of a BigQuery table.

https://cloud.google.com/bigquery/docs/clustered-tables
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import types

from tideline.contract.change_log import BATCH
from tideline.contract.errors import Misconfigured
from tideline.contract.layout_rules import format_problem
from tideline.contract.partition_fields import PartitionField, Transform
from tideline.contract.table_layout import CLUSTERING_COLUMNS_MAX, TableLayout
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess
from tideline_spark.formats.bigquery.stream_key import new_life_column
from tideline_spark.formats.bigquery.types import bigquery_type

_BATCHES = (BATCH,)
"""The partitions of a log of changes; there are more of them than a table here may have."""
_NOT_CLUSTERED = (
    types.FloatType,
    types.DoubleType,
    types.BinaryType,
    types.ArrayType,
    types.MapType,
)


def making(
    access: BigQueryAccess,
    schema: types.StructType,
    how: str,
    rows: str,
    streamed_key: Collection[str] = (),
) -> str:
    """Return the statement that makes the table, or replaces all of it, with columns ``schema``
    from ``rows``, a query that has them in this order; ``how``: as `laid_out` returns it.
    ``streamed_key``: the key of a table whose rows will come by streams."""
    listed = [f"{DIALECT.quote(one.name)} {bigquery_type(one.dataType)}" for one in schema.fields]
    if streamed_key:
        life = DIALECT.quote(new_life_column())
        key = ", ".join(map(DIALECT.quote, streamed_key))
        listed += [f"{life} INT64", f"PRIMARY KEY ({key}) NOT ENFORCED"]
        selected = ", ".join(map(DIALECT.quote, schema.names))
        rows = f"SELECT {selected}, CAST(NULL AS INT64) AS {life} FROM ({rows})"
    columns = ", ".join(listed)
    labels = ", ".join(
        f"({DIALECT.literal(name)}, {DIALECT.literal(value)})"
        for name, value in access.labels.items()
    )
    return (
        f"CREATE OR REPLACE TABLE {access.name.sql} ({columns}){how}"
        f" OPTIONS (labels = [{labels}]) AS {rows}"
    )


def laid_out(schema: types.StructType, layout: TableLayout, key: Collection[str]) -> str:
    """Return the clauses of a new table: partitioned and clustered as ``layout`` says; else
    clustered by its ``key``, so that a MERGE reads less than the whole table.

    Raises Misconfigured for partitions that BigQuery does not have.
    """
    clauses = ""
    if layout.partition_by == _BATCHES:
        layout, key = TableLayout(), _BATCHES
    if layout:
        problem = format_problem(layout, "bigquery")
        if problem is not None:
            raise Misconfigured(problem, hint="docs/BIGQUERY.md")
    for field in layout.fields:
        clauses = f" PARTITION BY {_partition(schema, field)}"
    wanted = layout.cluster_by or tuple(key)
    names = [name for name in wanted if not isinstance(schema[name].dataType, _NOT_CLUSTERED)]
    names = names[:CLUSTERING_COLUMNS_MAX]
    return clauses + (f" CLUSTER BY {', '.join(map(DIALECT.quote, names))}" if names else "")


def _partition(schema: types.StructType, field: PartitionField) -> str:
    """Return the partitions' expression. A date is its own day."""
    column, kind = DIALECT.quote(field.column), schema[field.column].dataType
    dated = isinstance(kind, types.DateType)
    if field.transform is Transform.IDENTITY or (dated and field.transform is Transform.DAY):
        return column
    part = field.transform.value.upper()
    return f"{bigquery_type(kind)}_TRUNC({column}, {part})"
