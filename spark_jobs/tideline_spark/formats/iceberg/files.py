"""Measures an Iceberg table's files from its metadata, rewrites them, and removes old ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.contract.table_layout import TableLayout
from tideline.contract.target_url import CATALOG
from tideline.warehouse.iceberg.metadata import APPLIED_KEY, IcebergMetadata, format_numbers
from tideline.warehouse.iceberg.names import VERSIONS_SETTING
from tideline.warehouse.iceberg.versions import SLACK_HOURS, needed_since, surplus
from tideline_spark.formats.file_figures import check_vacuum, summed
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.iceberg.ordering import set_order
from tideline_spark.schemas import literal, quote

_DATA = 0
_DELETED_COUNTS = ("deleted_data_files_count", "deleted_position_delete_files_count")

_VERSIONS_MAX = "500"


class IcebergFiles:
    """See `TargetFiles`."""

    def __init__(self, access: IcebergAccess) -> None:
        self._access = access
        self._session = access.session

    def measure(self, thresholds: Thresholds) -> Files:
        """See `TargetFiles`. Deleted rows are those of files of deletes that are in force."""
        files = self._session.table(f"{self._access.name}.files")
        data = files.where(F.col("content") == _DATA).select(
            "file_path",
            F.to_json(F.col("partition")).alias("partition")
            if "partition" in files.columns
            else F.lit("").alias("partition"),
            F.col("file_size_in_bytes").alias("size"),
            F.col("record_count").alias("rows"),
        )
        deletes = (
            files.where(F.col("content") != _DATA)
            .groupBy(F.col("referenced_data_file").alias("file_path"))
            .agg(F.sum("record_count").alias("deleted"))
        )
        joined = data.join(deletes, "file_path", "left").na.fill(0, ["deleted"])
        little = F.col("size") < thresholds.file_bytes // 2
        return summed(joined.withColumns({"little": little, "taken": little}), thresholds)

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        """See `TargetFiles`: combines small files, rewrites files without their deleted rows, or
        both."""
        options = {
            "target-file-size-bytes": str(thresholds.file_bytes),
            "min-file-size-bytes": str(thresholds.file_bytes // 2),
            "max-file-size-bytes": str(thresholds.file_bytes * 2),
            "remove-dangling-deletes": "true",
            "min-input-files": "2",
        }
        if decision.purge:
            options["delete-ratio-threshold"] = str(max(0.0001, thresholds.deleted_percent / 100))
        if not decision.compact:
            options["min-file-size-bytes"] = "0"
        listed = ", ".join(f"{literal(k)}, {literal(v)}" for k, v in options.items())
        layout = TableLayout.of_properties(self._access.metadata_of(self._access.load()).properties)
        set_order(self._access, layout)
        strategy = "sort" if self._access.load().sortOrder().isSorted() else "binpack"
        self._call("rewrite_data_files", f"strategy => '{strategy}', options => map({listed})")

    def vacuum(self, hours: float) -> int:
        """See `TargetFiles`: expires snapshots, then removes files that no metadata names."""
        check_vacuum(hours)
        self._remember_applied()
        cutoff = datetime.now(UTC) - timedelta(hours=hours)
        metadata = self._access.metadata_of(self._access.load())
        needed = needed_since(metadata, int(cutoff.timestamp() * 1_000))
        expired = self._call("expire_snapshots", f"older_than => {_timestamp(needed)}")[0]
        unnamed = int((cutoff - timedelta(hours=SLACK_HOURS)).timestamp() * 1_000)
        orphans = self._call("remove_orphan_files", f"older_than => {_timestamp(unnamed)}")
        return sum(int(expired[name] or 0) for name in _DELETED_COUNTS) + len(orphans)

    def drop_versions(self, metadata: IcebergMetadata) -> None:
        """Drop snapshots that ``metadata``, the table's, has too many of. Their files stay: readers
        that have begun on them need these, and `vacuum` removes them."""
        most = int(str(self._session.conf.get(VERSIONS_SETTING, _VERSIONS_MAX)))
        found = surplus(metadata, most)
        if not found:
            return
        expiry = self._access.load().expireSnapshots().expireOlderThan(0)
        for one in found:
            expiry = expiry.expireSnapshotId(one)
        expiry.cleanExpiredFiles(False).commit()

    def _remember_applied(self) -> None:
        """Repeat in the table's properties what it has applied, where its newest snapshot does not
        say so: the snapshots that do may be expired."""
        table = self._access.load()
        metadata = self._access.metadata_of(table)
        newest, applied = metadata.current, metadata.applied()
        if newest is None or newest.numbers(APPLIED_KEY) == applied:
            return
        text = format_numbers(applied)
        if metadata.properties.get(APPLIED_KEY) != text:
            table.updateProperties().set(APPLIED_KEY, text).commit()

    def _call(self, procedure: str, arguments: str) -> list[Row]:
        """Run a procedure of Iceberg's on the table."""
        name = literal(f"{quote(self._access.namespace)}.{quote(self._access.table_name)}")
        return self._session.sql(
            f"CALL {CATALOG}.system.{procedure}(table => {name}, {arguments})"
        ).collect()


def _timestamp(at_ms: int) -> str:
    """Return a time, ms since 1970 UTC, as SQL."""
    return f"timestamp_millis({at_ms})"
