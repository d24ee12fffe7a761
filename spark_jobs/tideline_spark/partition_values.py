"""The values of partition columns: those that cannot be kept are refused, others narrow a merge.

Delta keeps a partition's value as the name of a folder. Two texts come back as NULL: the empty one,
and the one that stands for NULL. Others no folder can be named by. A row with such a text is
refused, with the whole merge: it must not become another row in silence.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tideline.contract.errors import Misconfigured
from tideline.contract.plan import TablePlan
from tideline.contract.types import Kind
from tideline_spark.formats.statements import RowMerge, of_target
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
"""A merge of rows for more partitions than this is not narrowed."""


def check_columns(table: TablePlan) -> None:
    """Check that the rows of a new target have the columns of its layout: a plan may end before the
    change that brought one."""
    for name in table.layout.columns:
        if name not in table.schema.column_names:
            raise Misconfigured(
                f"the target of {table.table} is to be {table.layout}, and at manifest"
                f" {table.to_manifest}, where the plan ends, there is no column {name!r}",
                hint="have more merged at once (merge.bytes_max, merge.parts_max), or make the"
                " table without that column and rebuild it later",
            )


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


def narrowed(session: SparkSession, table: TablePlan, rows: RowMerge) -> RowMerge:
    """Return the merge with the partitions of its rows named, so that others are not read.

    Only by columns of the key, which equal rows have in common, and where no row is changed that
    the source lacks: the result is the same. Reads the merge's source once more.
    """
    names = [name for name in table.layout.partition_by if name in table.schema.key]
    if not names or rows.unmatched is not None:
        return rows
    listed = ", ".join(map(quote, names))
    found = session.sql(
        f"SELECT DISTINCT {listed} FROM {rows.source} LIMIT {VALUES_MAX + 1}"  # noqa: S608  quoted
    ).collect()
    if len(found) > VALUES_MAX:
        return rows
    conditions = [rows.on]
    for at, name in enumerate(names):
        values = sorted({_literal(row[at]) for row in found})
        conditions.append(f"{of_target(name)} IN ({', '.join(values)})" if values else "false")
    return dataclasses.replace(rows, on=" AND ".join(conditions))


def _literal(value: Any) -> str:
    """Return a value of a key column as SQL."""
    if isinstance(value, date):
        return f"cast({literal(value.isoformat())} as date)"
    return literal(value) if isinstance(value, str) else str(value).lower()
