"""Measures a Delta table's files from its log, rewrites them, and removes old ones."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.warehouse.delta.log import LOG_FOLDER
from tideline_spark.formats.delta.access import METADATA, DeltaAccess
from tideline_spark.formats.delta.purge import purge
from tideline_spark.formats.file_figures import check_vacuum, summed
from tideline_spark.formats.session_settings import verbatim

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
        return summed(_files(added, thresholds, clustered=clustered), thresholds)

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
        check_vacuum(hours)
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


def _files(added: DataFrame, thresholds: Thresholds, *, clustered: bool) -> DataFrame:
    """Return the files as `summed` takes them, from the log's ``add`` actions.

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
    return added.select(
        F.to_json("partitionValues").alias("partition"),
        F.col("size"),
        rows.alias("rows"),
        deleted.alias("deleted"),
        little.alias("little"),
        taken.alias("taken"),
    )
