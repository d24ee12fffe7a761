"""The values of partition columns: those that cannot be kept are refused, others narrow a merge.

Delta keeps a partition's value as the name of a folder. Two texts come back as NULL: the empty one,
and the one that stands for NULL. Others no folder can be named by. A row with such a text is
refused, with the whole merge: it must not become another row in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tideline.contract.plan import TablePlan
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


def kept_values(changes: DataFrame, table: TablePlan) -> DataFrame:
    """Return ``changes`` that fail where a partition column has a text that is not kept."""
    texts = {
        name
        for name in table.layout.partition_by
        if name in table.schema.column_names
        and table.schema.column(name).logical.kind is Kind.STRING
    }
    if not texts:
        return changes
    return changes.select(
        *(
            F.when(_lost(name), F.raise_error(F.lit(REFUSED)).cast("string"))
            .otherwise(col(name))
            .alias(name)
            if name in texts
            else col(name)
            for name in changes.columns
        )
    )


def _lost(name: str) -> Column:
    """Return whether no folder keeps the text: it is read as NULL, has a NUL, which Spark does not
    escape, or is too long. Names of columns are escaped like values."""
    own = len(re.sub(_ESCAPED, "%00", name).encode())
    left = _FOLDER_BYTES_MAX - 1 - max(own, _MAPPED_BYTES)
    escaped = F.regexp_replace(col(name), _ESCAPED, "%00")
    # The first term spares most texts the second.
    long = (F.octet_length(col(name)) * 3 > left) & (F.octet_length(escaped) > left)
    return col(name).isin(*NOT_KEPT) | col(name).contains("\0") | long


def partitions_of(changes: DataFrame, table: TablePlan, *, moved: bool) -> dict[str, list[str]]:
    """Return the values, as SQL, that the partition columns among the key's have in ``changes``,
    in keys before them too where any row ``moved``: rows of other partitions have none of the keys.

    Empty where that is of no use: without such columns, for too many values, and in a plan that
    ends rows of which it holds no change, in any partition. One small job.
    """
    names = [name for name in table.layout.partition_by if name in table.schema.key]
    if not names or table.create or table.ends or table.delete_before is not None:
        return {}
    keys = occurrences(changes, Shape(table.schema, moved=moved))
    found = keys.select(*map(col, names)).distinct().limit(VALUES_MAX + 1).collect()
    if len(found) > VALUES_MAX:
        return {}
    return {name: sorted({_literal(row[at]) for row in found}) for at, name in enumerate(names)}


def partition_bounds(partitions: Mapping[str, Sequence[str]], prefix: str = "") -> list[str]:
    """Return conditions by which files of other partitions are skipped. ``prefix`` is put before
    the column's name."""
    return [
        f"{prefix}{quote(name)} IN ({', '.join(values)})"
        for name, values in partitions.items()
        if values
    ]


def _literal(value: Any) -> str:
    """Return a value of a key column as SQL."""
    if isinstance(value, date):
        return f"cast({literal(value.isoformat())} as date)"
    return literal(value) if isinstance(value, str) else str(value).lower()
