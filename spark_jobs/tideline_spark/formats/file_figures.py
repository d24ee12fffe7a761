"""The figures of a table's files, which every format sums in the same way, and the age below which
none may be removed."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tideline.contract.errors import Misconfigured
from tideline.contract.maintenance import VACUUM_HOURS_MIN, Files, Thresholds


def summed(files: DataFrame, thresholds: Thresholds) -> Files:
    """Return the figures of ``files``, one row for each; runs a job.

    Columns: ``partition`` (text), ``size`` (bytes), ``rows``, ``deleted`` (rows marked as such),
    ``little`` (it counts as small), ``taken`` (it is rewritten with small ones).
    """
    fragmented = F.col("deleted") * 100 > F.col("rows") * thresholds.deleted_percent
    partitions = files.groupBy("partition").agg(
        F.count("*").alias("files"),
        F.sum("size").alias("bytes"),
        F.sum(F.col("little").cast("long")).alias("little"),
        F.sum(F.when(F.col("taken"), F.col("size"))).alias("little_bytes"),
        F.sum(fragmented.cast("long")).alias("fragmented"),
        F.sum("rows").alias("rows"),
        F.sum("deleted").alias("deleted"),
        F.sum((F.col("deleted") > 0).cast("long")).alias("vectors"),
        F.sum(F.when(F.col("deleted") > 0, F.col("size"))).alias("vector_bytes"),
    )
    # A single small file in a partition cannot be combined with another.
    together = F.col("little") > 1
    row = partitions.agg(
        F.sum("files").alias("files"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(together, F.col("little"))).alias("small"),
        F.sum(F.when(together, F.col("little_bytes"))).alias("small_bytes"),
        F.sum("fragmented").alias("fragmented"),
        F.sum("rows").alias("rows"),
        F.sum("deleted").alias("deleted"),
        F.sum("vectors").alias("vectors"),
        F.sum("vector_bytes").alias("vector_bytes"),
    ).collect()[0]
    return Files(**{name: int(row[name] or 0) for name in Files.__struct_fields__})


def check_vacuum(hours: float) -> None:
    """Raise Misconfigured where files of this age may still be written or read."""
    if hours < VACUUM_HOURS_MIN:
        raise Misconfigured(
            f"vacuum after {hours:g} hours would remove files that are being written or read",
            hint=f"set maintain.vacuum_hours to {VACUUM_HOURS_MIN:g} or more",
        )
