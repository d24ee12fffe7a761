"""Iceberg as a table format of the jobs: its session settings and the names of its failures."""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.warehouse.iceberg.names import MARKER_SETTING
from tideline_spark.formats.base import TableFormat
from tideline_spark.formats.iceberg.table import IcebergTarget


def _check_jars(session: SparkSession) -> None:
    """Check for Iceberg's jar: Spark only warns of a missing extension, and fails much later."""
    gateway: Any = session.sparkContext._gateway
    if not isinstance(gateway.jvm.org.apache.iceberg.spark.SparkCatalog, JavaClass):
        raise Misconfigured(
            "Iceberg's runtime is not in this Spark",
            hint="name its jar in merge.jars with the others, or have it in the cluster's Spark:"
            " iceberg-spark-runtime-4.1_2.13 of version 1.12.0",
        )


ICEBERG = TableFormat(
    open=IcebergTarget,
    marker=MARKER_SETTING,
    conflicts=(
        "ValidationException",
        "CommitFailedException",
        "CommitStateUnknownException",
        "AlreadyExistsException",
        "PendingUpdateFailedException",
        # A REST catalog's answer to a staged snapshot that came second: no branch moves by it, so
        # that there is no requirement which could fail.
        "last sequence number",
    ),
    null_refused=("NOT_NULL_ASSERT_VIOLATION",),
    settings={
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    },
    java_names=(
        "org.apache.iceberg",
        "org.apache.iceberg.expressions",
        "org.apache.iceberg.spark",
    ),
    check=_check_jars,
)
