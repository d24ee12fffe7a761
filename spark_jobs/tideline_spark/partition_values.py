"""The values of partition columns: those that cannot be kept are refused, others narrow a merge.

Delta keeps a partition's value as the name of a folder. Two texts come back as NULL: the empty one,
and the one that stands for NULL. Others no folder can be named by. Iceberg keeps the values in its
metadata, and names folders by them as well: of these only the length matters. A row with such a
text is refused, with the whole merge: it must not become another row in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from urllib.parse import quote_plus

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.partition_fields import PartitionField, Transform
from tideline.contract.plan import TablePlan
from tideline.contract.target_url import CATALOG, ICEBERG, table_format_of
from tideline.contract.types import Kind
from tideline_spark.fold import Shape, occurrences
from tideline_spark.schemas import column as col
from tideline_spark.schemas import literal, quote

NOT_KEPT = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that are NULL when they are read back."""
_FOLDER_BYTES_MAX = 255
"""The limit of file systems for a folder's name: the column's, ``=``, and the value."""
_MAPPED_BYTES = 40
"""The length of a column's name in files under column mapping."""
_ESCAPED = r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]"""
"""Characters that Spark writes as three in a folder's name (`ExternalCatalogUtils`)."""
REFUSED = "TIDELINE_PARTITION_VALUE"
"""The text of the failure of a row with one of these (`failures.explain`)."""
VALUES_MAX = 100
"""A merge of rows for more partitions than this reads all."""
_FUNCTIONS = {
    Transform.BUCKET: "bucket",
    Transform.TRUNCATE: "truncate",
    Transform.YEAR: "years",
    Transform.MONTH: "months",
    Transform.DAY: "days",
    Transform.HOUR: "hours",
}
_NAMING = (Transform.IDENTITY, Transform.TRUNCATE)
"""Transforms of which a text is a text, and names a folder."""


def kept_values(changes: DataFrame, table: TablePlan) -> DataFrame:
    """Return ``changes`` that fail where a partition column has a text that is not kept."""
    in_iceberg = table_format_of(table.target) == ICEBERG
    refused = {
        one.column: _too_long(one) if in_iceberg else _lost(one.column)
        for one in table.layout.fields
        if one.column in table.schema.column_names
        and one.transform in _NAMING
        and table.schema.column(one.column).logical.kind is Kind.STRING
    }
    if not refused:
        return changes
    return changes.select(
        *(
            F.when(refused[name], F.raise_error(F.lit(REFUSED)).cast("string"))
            .otherwise(col(name))
            .alias(name)
            if name in refused
            else col(name)
            for name in changes.columns
        )
    )


def _too_long(field: PartitionField) -> Column:
    """Return whether Iceberg, which writes names and values as in a url, would make a folder's name
    of the text that is too long."""
    left = _FOLDER_BYTES_MAX - 1 - len(quote_plus(field.name))
    text = F.substring(col(field.column), 1, field.size) if field.size else col(field.column)
    # The first term spares most texts the second.
    return (F.octet_length(text) * 3 > left) & (F.octet_length(F.url_encode(text)) > left)


def _lost(name: str) -> Column:
    """Return whether no folder keeps the text: it is read as NULL, has a NUL, which Spark does not
    escape, or is too long. Names of columns are escaped like values."""
    own = len(re.sub(_ESCAPED, "%00", name).encode())
    left = _FOLDER_BYTES_MAX - 1 - max(own, _MAPPED_BYTES)
    escaped = F.regexp_replace(col(name), _ESCAPED, "%00")
    # The first term spares most texts the second.
    long = (F.octet_length(col(name)) * 3 > left) & (F.octet_length(escaped) > left)
    return col(name).isin(*NOT_KEPT) | col(name).contains("\0") | long


def partitions_of(
    changes: DataFrame, table: TablePlan, *, moved: bool
) -> dict[PartitionField, list[str]]:
    """Return the values, as SQL, that the partition fields of the key's columns have in
    ``changes``, in keys before them too where any row ``moved``: rows of other partitions have none
    of the keys.

    Empty where that is of no use: without such columns, for too many values, and in a plan that
    ends rows of which it holds no change, in any partition. One small job.
    """
    fields = [one for one in table.layout.fields if one.column in table.schema.key]
    if table_format_of(table.target) != ICEBERG:
        fields = [one for one in fields if one.transform is Transform.IDENTITY]
    if not fields or table.create or table.ends or table.delete_before is not None:
        return {}
    keys = occurrences(changes, Shape(table.schema, moved=moved))
    values = [F.expr(partition_value(one)).alias(f"_{at}") for at, one in enumerate(fields)]
    found = keys.select(*values).distinct().limit(VALUES_MAX + 1).collect()
    if len(found) > VALUES_MAX:
        return {}
    return {one: sorted({_literal(row[at]) for row in found}) for at, one in enumerate(fields)}


def partition_bounds(
    partitions: Mapping[PartitionField, Sequence[str]], prefix: str = ""
) -> list[str]:
    """Return conditions by which files of other partitions are skipped. ``prefix`` is put before
    the column's name."""
    return [
        f"{partition_value(one, prefix)} IN ({', '.join(values)})"
        for one, values in partitions.items()
        if values
    ]


def partition_value(field: PartitionField, prefix: str = "") -> str:
    """Return the value of a row's partition as SQL: by Iceberg's own functions, from which it
    knows the partitions. ``prefix`` is put before the column's name."""
    column = f"{prefix}{quote(field.column)}"
    if field.transform is Transform.IDENTITY:
        return column
    size = f"{field.size}, " if field.size else ""
    return f"{CATALOG}.system.{_FUNCTIONS[field.transform]}({size}{column})"


def _literal(value: Any) -> str:
    """Return a value of a partition as SQL."""
    if isinstance(value, date):
        return f"cast({literal(value.isoformat())} as date)"
    if isinstance(value, (bytes, bytearray)):
        return f"X'{value.hex()}'"
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    return literal(value) if isinstance(value, str) else str(value).lower()
