"""Delta as a table format of the jobs: its session settings and the names of its failures."""

from __future__ import annotations

import re

from py4j.java_gateway import JavaClass, get_java_class  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.spark_versions import spark_line
from tideline.warehouse.delta.jars import VERSION, jar_names
from tideline.warehouse.delta.log_store import CLASS as LOG_STORE
from tideline.warehouse.delta.log_store import JAR, TAIL_CLASS
from tideline_spark.formats.base import TableFormat
from tideline_spark.formats.delta.table import DeltaTarget

_BUILD = re.compile(r"delta-spark_(\d+\.\d+)_")


def _check_jars(session: SparkSession) -> None:
    """Check for Delta's jars: Spark only warns of a missing extension, and fails much later; so do
    jars that are built for another line of Spark."""
    line = spark_line(session.version)
    wanted = f"{', '.join(jar_names(line))} of version {VERSION}"
    hint = (
        "name them in merge.jars (paths or addresses, separated by commas), or have them in the"
        f" cluster's Spark: {wanted}"
    )
    delta = session._jvm.org.apache.spark.sql.delta  # type: ignore[union-attr]
    if not isinstance(delta.DeltaLog, JavaClass):
        raise Misconfigured("Delta's jars are not in this Spark", hint=hint)
    place = get_java_class(delta.DeltaLog).getProtectionDomain().getCodeSource().getLocation()
    built = _BUILD.search(str(place.getPath()))
    if built is not None and built[1] != line:
        raise Misconfigured(
            f"Delta's jars are built for Spark {built[1]}, and this is Spark {session.version}",
            hint=hint,
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
        # Its own for S3 knows the writers of its process only.
        "spark.delta.logStore.s3.impl": LOG_STORE,
        "spark.delta.logStore.s3a.impl": LOG_STORE,
    },
    settings_in_s3={
        # The summary of a version, which Delta can do without, is put by a rename: 22 of a small
        # merge's 92 requests, one after the other.
        "spark.databricks.delta.writeChecksumFile.enabled": "false",
    },
    # Without it a merge is right, and slower with each commit of the table.
    settings_with_jar={JAR: {"spark.delta.logStore.file.impl": TAIL_CLASS}},
    java_names=("org.apache.spark.sql.delta",),
    check=_check_jars,
)
