"""The table formats that jobs write."""

from __future__ import annotations

from urllib.parse import unquote

from pyspark.sql import SparkSession

from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline_spark.formats.base import TableFormat, Target
from tideline_spark.formats.delta.format import DELTA

FORMATS: dict[str, TableFormat] = {
    "delta": DELTA,
}


def open_target(session: SparkSession, url: str) -> Target:
    """Open the table at ``url`` through ``session``, which must be its own."""
    # Addresses are percent-encoded, Hadoop's paths are not.
    return FORMATS[DEFAULT_FORMAT].open(session, unquote(url))
