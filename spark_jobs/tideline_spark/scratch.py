"""The folder in which Spark's driver spills, for files of ours that do not outlive a job."""

from __future__ import annotations

from pyspark.sql import SparkSession


def scratch_of(session: SparkSession) -> str | None:
    """Return the folder; None for the system's own."""
    found = session.conf.get("spark.local.dir", "")
    return (found or "").partition(",")[0] or None
