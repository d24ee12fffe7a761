"""Parquet files of ours, whatever their columns are called and whatever is said of them.

Spark hands the wanted columns to its reader as JSON in Hadoop's configuration, which puts other
things in the place of ``${…}`` when that is read: an environment variable (``${env.HOME}``), a
property of Java's (``${user.name}``), another setting, such as a store's secret. A column of such a
name would be sought under another one, not found, and be NULL, or be another column's. Hadoop
substitutes from the left and stops at the first reference that nothing is known of; so one stands
in front.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, types

from tideline_spark.schemas import column as col

_REFERENCE = "${"
_FIRST = "_tl_as_written"
_UNKNOWN = "${tideline-names-are-data}"
"""Nobody has a setting, a property or a variable of this name."""


def comment_text(text: str) -> str:
    """A column's comment as a table has it: with a space in ``$ {``. Comments are in the schema
    that Spark writes into each file, by the same way, and in that of everybody's readers."""
    return text.replace(_REFERENCE, "$ {")


def read_parquet(
    session: SparkSession, schema: types.StructType, addresses: Sequence[str]
) -> DataFrame:
    """The rows of the files at ``addresses`` (paths of Spark's, no patterns) in the columns of
    ``schema``; one that a file lacks is NULL."""
    # The addresses are names, not patterns, whatever characters the store's url has.
    reader = session.read.option("__globPaths__", "false")
    if not any(_REFERENCE in field.name for field in schema.fields):
        return reader.schema(schema).parquet(*addresses)
    # No file has this column. That it is NULL is asked of every row, or nobody would ask for it.
    first = types.StructField(_FIRST, types.BooleanType(), metadata={"as": _UNKNOWN})
    frame = reader.schema(types.StructType([first, *schema.fields])).parquet(*addresses)
    return frame.where(col(_FIRST).isNull()).drop(_FIRST)
