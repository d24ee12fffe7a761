"""Access to Spark's Java process, for Java interfaces that PySpark lacks.

These are Hadoop's file systems: jobs read and write small documents where the store and the
warehouse lie, with Spark's credentials, and `binaryFile` would run a job for each. Java interfaces
that a table format needs are in the format's own folder.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def java_names(session: SparkSession) -> Any:
    """Return Py4J's view of Java's names; one for all sessions of a process."""
    gateway: Any = session.sparkContext._gateway
    return gateway.jvm
