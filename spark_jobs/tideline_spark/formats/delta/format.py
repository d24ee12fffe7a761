"""Delta as a table format of the jobs: its session settings and the names of its failures."""

from __future__ import annotations

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.delta_jars import NAMES, VERSION
from tideline_spark.formats.base import TableFormat
from tideline_spark.formats.delta.table import DeltaTarget


def _check_jars(session: SparkSession) -> None:
    """Check for Delta's jars: Spark only warns of a missing extension, and fails much later."""
    delta = session._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    if not isinstance(delta.DeltaLog, JavaClass):
        raise Misconfigured(
            "Delta's jars are not in this Spark",
            hint="name them in merge.jars (paths or addresses, separated by commas), or have them"
            f" in the cluster's Spark: {', '.join(NAMES)} of version {VERSION}",
        )


DELTA = TableFormat(
    open=DeltaTarget,
    conflicts=(
        "ConcurrentAppendException",
        "ConcurrentDeleteReadException",
        "ConcurrentDeleteDeleteException",
        "ConcurrentTransactionException",
        "ConcurrentWriteException",
        "MetadataChangedException",
        "ProtocolChangedException",
        "DELTA_CONCURRENT",
        "DELTA_METADATA_CHANGED",
        "DELTA_PROTOCOL_CHANGED",
        # Two runs took the same schema step.
        "DELTA_DUPLICATE_COLUMNS_FOUND",
    ),
    null_refused=("DELTA_NOT_NULL_CONSTRAINT_VIOLATED",),
    settings={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The default runs 50 tasks for each snapshot of a table's log.
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    java_names=("org.apache.spark.sql.delta",),
    check=_check_jars,
)
