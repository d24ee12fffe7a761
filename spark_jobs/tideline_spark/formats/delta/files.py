"""Measures a Delta table's files from its log, rewrites them, and removes old ones."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.errors import Misconfigured
from tideline.contract.maintenance import (
    VACUUM_HOURS_MIN,
    Decision,
    Files,
    Thresholds,
)
from tideline.warehouse.delta.log import LOG_FOLDER
from tideline_spark.formats.delta.access import METADATA, DeltaAccess, verbatim
from tideline_spark.formats.delta.purge import purge

_OPTIMIZE = "spark.databricks.delta.optimize"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_LISTING_TASKS_PER_CORE = 4
_CUBE = "ZCUBE_ID"
"""The tag that names the run which clustered a file, and the others of that run: a cube."""
_WHOLE_CUBE_BYTES = 100 * 1024**3
"""The size from which a cube is left alone, by default of
``spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold``."""


class DeltaFiles:
    """See `TargetFiles`."""

    def __init__(self, access: DeltaAccess) -> None:
        self._access = access
        self._session = access.session

    def measure(self, thresholds: Thresholds) -> Files:
        """See `TargetFiles`; one job over the log's ``add`` actions in force."""
        seen = self._access.look_up()._2()
        delta = self._access.jvm.org.apache.spark.sql.delta.skipping.clustering
        clustered = delta.ClusteredTableUtils.isSupported(seen.protocol()) and bool(
            delta.ClusteringColumnInfo.extractLogicalNames(seen).nonEmpty()
        )
        added = DataFrame(seen.allFiles().toDF(), self._session)
        row = _figures(added, thresholds, clustered=clustered).collect()[0]
        return Files(**{name: int(row[name] or 0) for name in Files.__struct_fields__})

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        """See `TargetFiles`: combines small files, rewrites files without their deleted rows, or
        both."""
        settings = {
            f"{_OPTIMIZE}.minFileSize": str(thresholds.file_bytes // 2),
            f"{_OPTIMIZE}.maxFileSize": str(thresholds.file_bytes),
            f"{_OPTIMIZE}.maxDeletedRowsRatio": str(thresholds.deleted_percent / 100),
            METADATA: f"tideline maintain: {decision.reason}",
        }
        for name, value in settings.items():
            self._session.conf.set(name, verbatim(value))
        if decision.compact:
            self._session.sql(f"OPTIMIZE {self._access.name}").collect()
        if decision.purge:
            # OPTIMIZE leaves a file alone that has no other to be combined with.
            purge(self._access)

    def vacuum(self, hours: float) -> int:
        """See `TargetFiles`; returns how many fewer files there are afterwards (files that a merge
        writes concurrently reduce it)."""
        if hours < VACUUM_HOURS_MIN:
            raise Misconfigured(
                f"vacuum after {hours:g} hours would remove files that are being written or read",
                hint=f"set maintain.vacuum_hours to {VACUUM_HOURS_MIN:g} or more",
            )
        # The default lists every table in 10,000 tasks: measured, 46 CPU seconds against 4.
        cores = self._session.sparkContext.defaultParallelism
        self._session.conf.set(_LISTING, str(_LISTING_TASKS_PER_CORE * cores))
        # Delta's own minimum is a week.
        self._session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        before = self._present()
        self._session.sql(f"VACUUM {self._access.name} RETAIN {hours:g} HOURS").collect()
        return max(0, before - self._present())

    def _present(self) -> int:
        """Count the files in the table's directory, except its log's."""
        files, folder = self._access.folder()
        found = files.listFiles(folder, True)
        count = 0
        while found.hasNext():
            count += f"/{LOG_FOLDER}/" not in str(found.next().getPath())
        return count


def _figures(added: DataFrame, thresholds: Thresholds, *, clustered: bool) -> DataFrame:
    """Return one row with the columns of `Files`, from the log's ``add`` actions.

    In a clustered table OPTIMIZE combines files by cubes, not by size: it takes those that no run
    has clustered yet, and all of every cube that is not whole. So these count as small, however
    large, and what is rewritten with them.
    """
    rows = F.coalesce(F.get_json_object("stats", "$.numRecords").cast("long"), F.lit(0))
    deleted = F.coalesce(F.col("deletionVector.cardinality"), F.lit(0))
    little = F.col("size") < thresholds.file_bytes // 2
    taken = little
    if clustered:
        little = F.col("clusteringProvider").isNull()
        cube = F.sum("size").over(Window.partitionBy(F.col("tags")[_CUBE]))
        taken = little | (cube < F.lit(_WHOLE_CUBE_BYTES))
    files = added.select(
        F.to_json("partitionValues").alias("partition"),
        F.col("size"),
        rows.alias("rows"),
        deleted.alias("deleted"),
        little.alias("little"),
        taken.alias("taken"),
        (deleted * 100 > rows * thresholds.deleted_percent).alias("fragmented"),
    )
    partitions = files.groupBy("partition").agg(
        F.count("*").alias("files"),
        F.sum("size").alias("bytes"),
        F.sum(F.col("little").cast("long")).alias("little"),
        F.sum(F.when(F.col("taken"), F.col("size"))).alias("little_bytes"),
        F.sum(F.col("fragmented").cast("long")).alias("fragmented"),
        F.sum("rows").alias("rows"),
        F.sum("deleted").alias("deleted"),
        F.sum((F.col("deleted") > 0).cast("long")).alias("vectors"),
        F.sum(F.when(F.col("deleted") > 0, F.col("size"))).alias("vector_bytes"),
    )
    # A single small file in a partition cannot be combined with another.
    together = F.col("little") > 1
    return partitions.agg(
        F.sum("files").alias("files"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.when(together, F.col("little"))).alias("small"),
        F.sum(F.when(together, F.col("little_bytes"))).alias("small_bytes"),
        F.sum("fragmented").alias("fragmented"),
        F.sum("rows").alias("rows"),
        F.sum("deleted").alias("deleted"),
        F.sum("vectors").alias("vectors"),
        F.sum("vector_bytes").alias("vector_bytes"),
    )
