"""Reads our Parquet files correctly for any column names and comments.

Spark passes the wanted columns to its reader as JSON in Hadoop's configuration, which substitutes
``${…}`` on reading: an environment variable (``${env.HOME}``), a Java property (``${user.name}``),
or another setting, such as a store's secret. A column with such a name would be looked up under
another one, and be NULL or another column's. Hadoop substitutes from the left and stops at the
first unknown reference; so one is put in front.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, types

from tideline_spark.schemas import column as col

_REFERENCE = "${"
_FIRST = "_tl_as_written"
_UNKNOWN = "${tideline-names-are-data}"
"""No setting, property or variable has this name."""
_PATTERN_SIGNS = re.compile(r"[{}\[\]*?\\]")
"""What makes a path a pattern for Spark (`SparkHadoopUtil.isGlobPath`)."""


def comment_text(text: str) -> str:
    """Return a column's comment as a table has it: with a space in ``$ {``. Comments are in the
    schema that Spark writes into each file, in the same way, and in that of all readers."""
    return text.replace(_REFERENCE, "$ {")


def read_parquet(
    session: SparkSession, schema: types.StructType, addresses: Sequence[str]
) -> DataFrame:
    """Read the files at ``addresses`` (Spark paths, no patterns) in the columns of ``schema``; a
    column that a file lacks is NULL."""
    reader, addresses = session.read, [as_name(one) for one in addresses]
    if not any(_REFERENCE in field.name for field in schema.fields):
        return reader.schema(schema).parquet(*addresses)
    # No file has this column. Every row is filtered by its NULL, or Spark would not request it.
    first = types.StructField(_FIRST, types.BooleanType(), metadata={"as": _UNKNOWN})
    frame = reader.schema(types.StructType([first, *schema.fields])).parquet(*addresses)
    return frame.where(col(_FIRST).isNull()).drop(_FIRST)


def as_name(address: str) -> str:
    """Return the pattern that stands for ``address`` alone, whatever characters the url has.

    Spark's option ``__globPaths__`` is no way: for each path that looks like a pattern Spark then
    takes all paths given (`DataSource.checkAndGlobPathIfNecessary`), so that *n* parts are read
    *n* times each.
    """
    return _PATTERN_SIGNS.sub(r"\\\g<0>", address)
