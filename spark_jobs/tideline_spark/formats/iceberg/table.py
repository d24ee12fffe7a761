"""An Iceberg table as a target: the commits that we make.

Iceberg has no transaction ids that skip a commit. So a commit reads what the table has applied, and
is not made where that is enough; of two that read the same state, the later one is not published
(`tideline_spark.formats.iceberg.publishing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from tideline.contract.errors import InvariantBroken
from tideline.contract.external_commits import SinceOurs, TableCommit, since_ours
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.warehouse.iceberg.metadata import IcebergMetadata, TableSnapshot
from tideline.warehouse.iceberg.names import VERSION_SETTING
from tideline_spark.formats.iceberg.access import IcebergAccess, made_by
from tideline_spark.formats.iceberg.columns import IcebergColumns
from tideline_spark.formats.iceberg.description import IcebergDescription
from tideline_spark.formats.iceberg.files import IcebergFiles
from tideline_spark.formats.iceberg.key_lists import TARGET_BYTES_MIN, with_keys_listed
from tideline_spark.formats.iceberg.ordering import (
    making_properties,
    merge_distribution,
    set_order,
    sorted_rows,
    writing_settings,
)
from tideline_spark.formats.iceberg.publishing import STAGING_PROPERTY
from tideline_spark.formats.iceberg.rewriting import emptied, partitioned_by
from tideline_spark.formats.iceberg.version import (
    IcebergVersion,
    as_readers_see,
    stored_bytes_of,
)
from tideline_spark.formats.iceberg.write_modes import MODES, ON_READ, ON_WRITE
from tideline_spark.formats.session_settings import setting
from tideline_spark.formats.state import RowCounts, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import (
    TARGET,
    RowClause,
    RowMerge,
    listed_properties,
    of_source,
    set_property,
)
from tideline_spark.schemas import narrowed, quote

_OURS = "tideline."
_VERSION = "format-version"
_COUNTED = "spark.merge-into.num-target-rows-"
_PARTLY = "Cannot delete file where some, but not all, rows match filter"
_VIEW = "tideline_range"


class IcebergTarget:
    """See `Target`."""

    bytes_billed = 0

    def __init__(self, session: SparkSession, url: str) -> None:
        self._access = IcebergAccess(session, url)
        self._session = session
        self.schema = IcebergColumns(self._access)
        self.description = IcebergDescription(self._access)
        self.files = IcebergFiles(self._access)

    def look(self) -> IcebergVersion:
        """See `Target`."""
        return self._version(self._access.look())

    def snapshot(self) -> TargetSnapshot:
        """See `Target`."""
        return self._version(self._access.find()).snapshot()

    def _version(self, table: Any) -> IcebergVersion:
        if table is None:
            return IcebergVersion(None, types.StructType([]))
        return IcebergVersion(self._access.metadata_of(table), self._access.spark_schema(table))

    def newest(self) -> int:
        """See `Target`."""
        metadata = self._access.metadata()
        return -1 if metadata is None else metadata.version

    def rows(self, version: int | None = None) -> DataFrame:
        """See `Target`."""
        if version is None:
            return self._session.table(self._access.name)
        table = self._access.load()
        metadata = self._access.metadata_of(table)
        found = metadata.at(version)
        if found is None:
            raise InvariantBroken(f"version {version} of {self._access.name} has been removed")
        rows = self._session.read.option("versionAsOf", found.id).table(self._access.name)
        if found is metadata.current and metadata.columns_changed(found.schema_id):
            return as_readers_see(rows, metadata, self._access.spark_schema(table))
        return rows

    def rows_of(
        self, columns: Sequence[str], where: Sequence[str], among: DataFrame | None = None
    ) -> DataFrame:
        """See `Target`."""
        return narrowed(self.rows(), columns, where, among)

    def commits(self, version: int) -> Iterator[TableCommit]:
        """See `Target`."""
        metadata = self._access.metadata()
        return iter(()) if metadata is None else metadata.commits(version)

    def since_ours(self, commits: Iterable[TableCommit], app_id: str) -> SinceOurs:
        """See `Target`. Applied numbers follow a rollback."""
        return since_ours(commits, app_id)

    def create(
        self,
        view: str,
        plan: TablePlan,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout = NO_LAYOUT,
    ) -> RowCounts | None:
        """See `Target`."""
        before = self._access.metadata()
        if plan.replace and _has_applied(before, commit_metadata):
            return None
        mode = ON_READ if plan.deletion_vectors else ON_WRITE
        given = {
            _VERSION: str(self._session.conf.get(VERSION_SETTING, "3")),
            **dict.fromkeys(MODES, mode),
            STAGING_PROPERTY: "true",
            # Each commit writes all of the metadata; the files of former ones would never go.
            "write.metadata.delete-after-commit.enabled": "true",
            **properties,
        }
        self._access.make_namespace()
        made = self._make(before if plan.replace else None, view, given, commit_metadata, layout)
        return None if made is None else RowCounts(made.count("added-records"))

    def replace(
        self,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
        *,
        vectors: bool | None = None,
    ) -> int | None:
        """See `Target`."""
        before = self._access.metadata()
        if before is None or _has_applied(before, commit_metadata):
            return None
        made = self._make(before, view, properties, commit_metadata, layout)
        return None if made is None else made.version

    def _make(
        self,
        before: IcebergMetadata | None,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
    ) -> TableSnapshot | None:
        """Make the table, or replace the one that was there ``before``."""
        verb = "CREATE TABLE" if before is None else "CREATE OR REPLACE TABLE"
        numbers = {commit_metadata.app_id: commit_metadata.to_manifest}
        given = listed_properties(emptied(before, {**making_properties(layout), **properties}))
        with (
            self._access.replacing(before, commit_metadata, numbers),
            setting(self._session, writing_settings(layout)),
        ):
            self._session.sql(
                f"{verb} {self._access.name} USING iceberg{partitioned_by(layout)}"
                f" TBLPROPERTIES ({given}) AS TABLE {quote(view)}{sorted_rows(layout)}"
            ).collect()
        set_order(self._access, layout)
        return made_by(self._access.metadata(), commit_metadata)

    def properties_after_swap(
        self,
        live: Mapping[str, str],
        rebuilt: Mapping[str, str],
        without: Collection[str] = (),
    ) -> dict[str, str]:
        """See `Target`."""
        found = {name: value for name, value in live.items() if not name.startswith(_OURS)}
        for name, value in merge_distribution(TableLayout.of_properties(live)).items():
            if found.get(name) == value:  # Otherwise someone else has set it.
                del found[name]
        return found | {name: rebuilt[name] for name in MODES if name in rebuilt}

    def overwrite(
        self, rows: DataFrame, covered: str, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        """See `Target`: whole files are replaced; where one has other rows, too, those that
        satisfy ``covered`` are deleted from it."""
        before = self._access.metadata()
        if before is None or _has_applied(before, commit_metadata):
            return None
        numbers = {commit_metadata.app_id: commit_metadata.to_manifest}
        with self._access.committing(before, commit_metadata, numbers):
            try:
                rows.writeTo(self._access.name).overwrite(F.expr(covered))
            except (Py4JJavaError, PySparkException) as error:
                if _PARTLY not in str(error):
                    raise
                self._exchange(rows, covered)
        made = made_by(self._access.metadata(), commit_metadata)
        return None if made is None else RowCounts(made.count("added-records"))

    def _exchange(self, rows: DataFrame, covered: str) -> None:
        """Delete the rows that satisfy ``covered``, and insert ``rows``."""
        rows.createOrReplaceTempView(_VIEW)
        values = {name: of_source(name) for name in rows.columns}
        exchange = RowMerge(_VIEW, "false", (), RowClause(values=values), RowClause(f"({covered})"))
        self._session.sql(exchange.sql(self._access.name)).collect()

    def merge(
        self, rows: RowMerge, commit_metadata: CommitMetadata, *, still: bool = False
    ) -> RowCounts | None:
        """See `Target`."""
        if not (rows.matched or rows.unmatched):
            # Spark makes it an append, whose commit Iceberg does not compare with others'.
            raise InvariantBroken(f"a merge into {TARGET} would only insert")
        before = self._access.metadata()
        if before is None or _has_applied(before, commit_metadata):
            return None
        if still and stored_bytes_of(before) >= TARGET_BYTES_MIN:
            rows = with_keys_listed(self._session, rows)
        numbers = {commit_metadata.app_id: commit_metadata.to_manifest}
        with self._access.committing(before, commit_metadata, numbers):
            self._session.sql(rows.sql(self._access.name)).collect()
        made = made_by(self._access.metadata(), commit_metadata)
        if made is None:
            return None
        kinds = ("inserted", "updated", "deleted")
        return RowCounts(*(made.count(f"{_COUNTED}{kind}") for kind in kinds))

    def repair(self, rows: RowMerge, commit_metadata: CommitMetadata) -> None:
        """See `Target`."""
        before = self._access.metadata_of(self._access.load())
        with self._access.committing(before, commit_metadata, {}):
            self._session.sql(rows.sql(self._access.name)).collect()

    def admit_readers(self, without: Collection[str] = ()) -> bool:
        """See `Target`: what a reader must know follows from the format's version, which a rebuild
        gives to the table with its rows."""
        return False

    def remove(self) -> None:
        """See `Target`."""
        if self._access.find() is not None:
            self._access.catalog.dropTable(self._access.identifier, True)

    def drop_versions(self, seen: TargetVersion) -> None:
        """See `Target`."""
        if isinstance(seen, IcebergVersion) and seen.metadata is not None:
            self.files.drop_versions(seen.metadata)

    def set_property(self, name: str, value: str | None) -> None:
        """See `Target`."""
        self._session.sql(set_property(self._access.name, name, value))


def _has_applied(before: IcebergMetadata | None, commit_metadata: CommitMetadata) -> bool:
    """Return whether the table stands at or past the number of a commit."""
    if before is None:
        return False
    applied = before.applied().get(commit_metadata.app_id)
    return applied is not None and applied >= commit_metadata.to_manifest
