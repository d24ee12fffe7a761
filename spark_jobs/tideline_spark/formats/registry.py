"""The table formats that jobs write."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tideline.contract.target_url import table_format_of
from tideline_spark.formats.base import TableFormat, Target
from tideline_spark.formats.bigquery.format import BIGQUERY
from tideline_spark.formats.delta.format import DELTA
from tideline_spark.formats.iceberg.format import ICEBERG

FORMATS: dict[str, TableFormat] = {
    "delta": DELTA,
    "iceberg": ICEBERG,
    "bigquery": BIGQUERY,
}


def open_target(session: SparkSession, url: str) -> Target:
    """Open the table at ``url`` (`target_url`) through ``session``, which must be its own."""
    return FORMATS[table_format_of(url)].open(session, url)
