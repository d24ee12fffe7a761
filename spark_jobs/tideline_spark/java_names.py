"""The way into Spark's Java process, for what PySpark has no interface to.

That is Hadoop's file systems: jobs read and write small documents where the store and the warehouse
lie, with the credentials that Spark has, and `binaryFile` would run a job for each. What a table
format needs of Java is in the format's own folder.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def java_names(session: SparkSession) -> Any:
    """Py4J's view of Java's names; one for all sessions of a process."""
    gateway: Any = session.sparkContext._gateway
    return gateway.jvm
