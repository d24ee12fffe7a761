"""A Delta table as a target: the commits that we make.

A commit of ours carries Delta's transaction id (app id, version = manifest number) and, as user
metadata, a JSON `CommitMetadata`. Delta only skips a commit whose number is not above the table's;
the caller checks the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from tideline.cluster_spark import is_cluster
from tideline.contract.errors import Misconfigured
from tideline.contract.external_commits import SinceOurs, TableCommit, since_ours
from tideline.contract.layout_rules import format_problem
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.readers import NEEDS_MAPPING, Feature
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.warehouse.delta.log import DELETION_VECTORS, LOG_FOLDER
from tideline_spark.formats.delta.access import MAPPING, DeltaAccess
from tideline_spark.formats.delta.columns import DeltaColumns
from tideline_spark.formats.delta.description import DeltaDescription
from tideline_spark.formats.delta.files import DeltaFiles
from tideline_spark.formats.delta.version import DeltaVersion
from tideline_spark.formats.session_settings import setting
from tideline_spark.formats.state import RowCounts, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import RowMerge, listed_properties, set_property
from tideline_spark.schemas import names_in, narrowed, quote

_MATERIALIZED = "spark.databricks.delta.merge.materializeSource"
_REPARTITIONED = "spark.databricks.delta.merge.repartitionBeforeWrite.enabled"
_PARSED = frozenset(".`")
"""Characters that have a meaning where Delta takes a column's name for an expression."""
_OURS = ("tideline.", "delta.")
_INDEXED = 32
"""The columns, from the first on, that Delta keeps bounds of by default."""
_INDEXED_PROPERTY = "delta.dataSkippingNumIndexedCols"
_REMOVABLE = {
    Feature.DELETION_VECTORS: ("DeletionVectorsTableFeature$", DELETION_VECTORS, "true"),
    Feature.TYPE_WIDENING: ("TypeWideningTableFeature$", "delta.enableTypeWidening", "true"),
    Feature.COLUMN_MAPPING: ("ColumnMappingTableFeature$", *MAPPING),
}
"""Features that can be dropped: Delta's class, and the property by which a table asks for one."""


class DeltaTarget:
    """See `Target`."""

    bytes_billed = 0

    def __init__(self, session: SparkSession, url: str) -> None:
        path = unquote(url)  # Addresses are percent-encoded, Hadoop's paths are not.
        self._access = DeltaAccess(session, path)
        self._session = session
        self._path = path
        self._seen: DeltaVersion | None = None
        self.schema = DeltaColumns(self._access)
        self.description = DeltaDescription(self._access)
        self.files = DeltaFiles(self._access)

    def look(self) -> DeltaVersion:
        """See `Target`."""
        self._seen = DeltaVersion(self._access.look_up()._2(), self.commits)
        return self._seen

    def snapshot(self) -> TargetSnapshot:
        """See `Target`."""
        return self.look().snapshot()

    def newest(self) -> int:
        """See `Target`."""
        return self.look().number

    def rows(self, version: int | None = None) -> DataFrame:
        """See `Target`."""
        if version is None:
            return self._session.table(self._access.name)
        reader = self._session.read.format("delta").option("versionAsOf", version)
        return reader.load(self._path)

    def rows_of(
        self, columns: Sequence[str], where: Sequence[str], among: DataFrame | None = None
    ) -> DataFrame:
        """See `Target`."""
        return narrowed(self.rows(), columns, where, among)

    def commits(self, version: int) -> Iterator[TableCommit]:
        """See `Target`."""
        return self._access.commits(version)

    def since_ours(self, commits: Iterable[TableCommit], app_id: str) -> SinceOurs:
        """See `Target`."""
        return since_ours(commits, app_id, lambda version: self.rows(version).columns)

    def create(
        self,
        view: str,
        plan: TablePlan,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout = NO_LAYOUT,
    ) -> RowCounts | None:
        """See `Target`."""
        properties = {DELETION_VECTORS: str(plan.deletion_vectors).lower(), **properties}
        half_made = self._half_made(plan.table)
        before = self.newest()
        again = plan.replace or (half_made and before < 0)
        verb = "CREATE OR REPLACE TABLE" if again else "CREATE TABLE"
        self._make(verb, view, properties, commit_metadata, layout)
        return self._written(before)

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
        if vectors is not None:
            properties = {**properties, DELETION_VECTORS: str(vectors).lower()}
        before = self.newest()
        self._make("CREATE OR REPLACE TABLE", view, properties, commit_metadata, layout)
        for commit in self.commits(self.newest()):
            if commit.version <= before:
                break
            if commit.numbers.get(commit_metadata.app_id) == commit_metadata.to_manifest:
                return commit.version
        return None

    def properties_after_swap(
        self,
        live: Mapping[str, str],
        rebuilt: Mapping[str, str],
        without: Collection[str] = (),
    ) -> dict[str, str]:
        """See `Target`."""
        found = {name: value for name, value in live.items() if not name.startswith(_OURS)}
        found[DELETION_VECTORS] = rebuilt.get(DELETION_VECTORS, "false")
        name, mapped = MAPPING
        if mapped in (live.get(name), rebuilt.get(name)):
            found[name] = mapped
        if mapped != rebuilt.get(name) and Feature.COLUMN_MAPPING in without:
            found.pop(name, None)
        return found

    def overwrite(
        self, rows: DataFrame, covered: str, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        """See `Target`."""
        before = self.newest()
        with self._access.with_metadata(
            commit_metadata, commit_metadata.app_id, commit_metadata.to_manifest
        ):
            rows.write.format("delta").mode("overwrite").option("replaceWhere", covered).save(
                self._path
            )
        return self._written(before)

    def merge(
        self, rows: RowMerge, commit_metadata: CommitMetadata, *, still: bool = False
    ) -> RowCounts | None:
        """See `Target`."""
        settings = self._merge_settings() | ({_MATERIALIZED: "none"} if still else {})
        numbered = self._access.with_metadata(
            commit_metadata, commit_metadata.app_id, commit_metadata.to_manifest
        )
        with numbered, setting(self._session, settings):
            answer = self._session.sql(rows.sql(self._access.name)).collect()
        if not answer:
            return None
        names = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
        return RowCounts(*(int(answer[0][name]) for name in names))

    def repair(self, rows: RowMerge, commit_metadata: CommitMetadata) -> None:
        """See `Target`."""
        numbered = self._access.with_metadata(commit_metadata)
        with numbered, setting(self._session, self._merge_settings()):
            self._session.sql(rows.sql(self._access.name)).collect()

    def admit_readers(self, without: Collection[str] = ()) -> bool:
        """See `Target`: a feature that the table's own properties ask for stays."""
        seen = self._access.look_up()._2()
        protocol, asked = seen.protocol(), seen.metadata().configuration()
        dropped = False
        for feature, (java_name, name, value) in _REMOVABLE.items():
            if feature is not Feature.DELETION_VECTORS and feature not in without:
                continue
            set_to = asked.get(name)
            if set_to.isDefined() and set_to.get() == value:
                continue
            delta = self._access.jvm.org.apache.spark.sql.delta
            if not protocol.isFeatureSupported(getattr(getattr(delta, java_name), "MODULE$")):
                continue
            self._check_drops(feature)
            self._session.sql(f"ALTER TABLE {self._access.name} DROP FEATURE {feature.value}")
            dropped = True
        return dropped

    def _check_drops(self, feature: Feature) -> None:
        """Raise Misconfigured where Delta cannot drop ``feature``: it looks for deletion vectors in
        tasks that need the driver's session (4.4.0: `filterParquetFilesOnExecutors`)."""
        if feature is Feature.DELETION_VECTORS and is_cluster(
            str(self._session.sparkContext.master)
        ):
            raise Misconfigured(
                "no file has deletion vectors any more, but the table still says that a reader has"
                " to know them: Delta's DROP FEATURE fails on a cluster",
                hint='`tideline rebuild` with merge.master = "local[2]" removes that, too',
            )

    def remove(self) -> None:
        """See `Target`."""
        files, folder = self._access.folder()
        files.delete(folder, True)

    def drop_versions(self, seen: TargetVersion) -> None:
        """See `Target`: the log keeps checkpoints, and removes its old entries by itself."""

    def set_property(self, name: str, value: str | None) -> None:
        """See `Target`."""
        self._session.sql(set_property(self._access.name, name, value))

    def _make(
        self,
        verb: str,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
    ) -> None:
        problem = format_problem(layout, DEFAULT_FORMAT)
        if problem is not None:
            raise Misconfigured(problem, hint="docs/LAYOUT.md")
        schema = self._session.table(quote(view)).schema
        if any(NEEDS_MAPPING & {*name} for name in names_in(schema)):
            properties = {**properties, **dict([MAPPING])}
        columns = schema.names
        last = max((columns.index(name) for name in layout.cluster_by), default=0)
        if last >= _INDEXED:  # Delta clusters by columns whose bounds it keeps.
            properties = {_INDEXED_PROPERTY: str(last + 1), **properties}
        how = "CLUSTER BY" if layout.cluster_by else "PARTITIONED BY"
        by = f" {how} ({', '.join(map(quote, layout.columns))})" if layout else ""
        with self._access.with_metadata(
            commit_metadata, commit_metadata.app_id, commit_metadata.to_manifest
        ):
            self._session.sql(
                f"{verb} {self._access.name} USING delta"
                f" TBLPROPERTIES ({listed_properties(properties)}){by} AS TABLE {quote(view)}"
            )

    def _merge_settings(self) -> dict[str, str]:
        """Return settings for a MERGE: before it writes, Delta brings the rows of each partition
        together by the partition columns' names, unquoted, so that it fails for some. Without that
        each task writes a file of its own in every partition that it has rows for."""
        # As last seen: another look is several requests in S3, and only a rebuild changes them.
        names = (self._seen or self.look()).partition_columns()
        return {} if _PARSED.isdisjoint("".join(names)) else {_REPARTITIONED: "false"}

    def _half_made(self, table: str) -> bool:
        """Return whether a run was killed while making the table, or another is making it now: its
        log has no commit. For `CREATE TABLE` it exists as soon as anything lies at its path.

        Raises Misconfigured where something else lies there.
        """
        files, folder = self._access.folder()
        if files.exists(self._access.jvm.org.apache.hadoop.fs.Path(folder, LOG_FOLDER)):
            return self.newest() < 0
        if files.exists(folder) and len(files.listStatus(folder)):
            raise Misconfigured(
                f"files that are no table lie where {table} is to be made: {self._path}",
                hint="remove or move them, or name another warehouse.url",
            )
        return False

    def _written(self, before: int) -> RowCounts | None:
        """Return what the newest commit wrote; None while that is still version ``before``."""
        after = self.newest()
        if after == before:
            return None
        newest = next(self.commits(after), None)
        return RowCounts(0 if newest is None else newest.rows_written)
