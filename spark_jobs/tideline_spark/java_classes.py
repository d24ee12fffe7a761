"""Java classes of jars that Spark is given: what lacks one is named before a job misses it."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.warehouse.job_jars import WHERE_JARS_ARE_LISTED, classes_in_s3
from tideline_spark.files import java_names


def require_s3(session: SparkSession) -> None:
    """Raise Misconfigured where this Spark lacks a jar of S3's client, or that of a format's
    commits in S3: the first read, or the first commit, would fail with the name of a class."""
    wanted = classes_in_s3()
    missing = [jar for name, jar in wanted.items() if not _is_there(session, name)]
    if missing:
        raise Misconfigured(
            f"jars for S3 are not in this Spark: {', '.join(missing)}",
            hint="name them and those that they need in merge.jars (paths or addresses, separated"
            f" by commas), or have them in the cluster's Spark: {WHERE_JARS_ARE_LISTED}",
        )


def _is_there(session: SparkSession, name: str) -> bool:
    """Return whether Spark can load the class: a jar that it depends on may be missing, too."""
    load = java_names(session).org.apache.spark.util.Utils.classForName
    try:
        load(name, False, False)
    except Py4JJavaError:
        return False
    return True
