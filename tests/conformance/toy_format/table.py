"""The toy format as jobs write it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.conformance.toy_format.aspects import ToyDescription, ToyFiles, ToySchema
from tests.conformance.toy_format.log import CONFLICT, Entry, ToyLog
from tests.conformance.toy_format.merging import KIND, judged
from tests.conformance.toy_format.stored import ToyTable, schema_of_entry
from tideline.contract.external_commits import SinceOurs, TableCommit, since_ours
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline_spark.formats.base import TableFormat
from tideline_spark.formats.state import RowCounts, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import RowMerge
from tideline_spark.schemas import column as col
from tideline_spark.schemas import narrowed


class ToyVersion(TargetVersion):
    """See `TargetVersion`."""

    def __init__(self, log: ToyLog) -> None:
        self._entry = log.newest()
        super().__init__(self._entry.version, log.commits)

    def stored_bytes(self) -> int:
        return 0

    @property
    def properties(self) -> Mapping[str, str]:
        return self._entry.properties

    def snapshot(self) -> TargetSnapshot:
        one = self._entry
        return TargetSnapshot(one.version, one.applied, one.properties, schema_of_entry(one))


class ToyTarget:
    """See `Target`."""

    bytes_billed = 0

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._table = ToyTable(session, path)
        self._log = self._table.log
        self.schema = ToySchema(self._table)
        self.description = ToyDescription(self._table)
        self.files = ToyFiles(self._table)

    def look(self) -> ToyVersion:
        return ToyVersion(self._log)

    def snapshot(self) -> TargetSnapshot:
        return self.look().snapshot()

    def newest(self) -> int:
        return self._log.newest().version

    def rows(self, version: int | None = None) -> DataFrame:
        entry = self._log.newest() if version is None else self._log.entry(version)
        return self._table.rows(entry)

    def rows_of(
        self, columns: Sequence[str], where: Sequence[str], among: DataFrame | None = None
    ) -> DataFrame:
        return narrowed(self.rows(), columns, where, among)

    def commits(self, version: int) -> Iterator[TableCommit]:
        return self._log.commits(version)

    def since_ours(self, commits: Iterable[TableCommit], app_id: str) -> SinceOurs:
        return since_ours(commits, app_id)

    def create(
        self,
        view: str,
        plan: TablePlan,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout = NO_LAYOUT,
    ) -> RowCounts | None:
        base = self._log.newest()
        if base.version >= 0 and not plan.replace:
            raise PySparkException(message=f"[{CONFLICT}]")
        return self._make(base, "CREATE", view, properties, commit_metadata)

    def replace(
        self,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
        *,
        vectors: bool | None = None,
    ) -> int | None:
        base = self._log.newest()
        made = self._make(base, "REPLACE", view, properties, commit_metadata)
        return None if made is None else base.version + 1

    def _make(
        self,
        base: Entry,
        operation: str,
        view: str,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> RowCounts | None:
        fresh = replace(base, properties=dict(properties), comments={}, firm=[])
        return self._put(fresh, operation, self._session.table(view), commit_metadata)

    def properties_after_swap(
        self,
        live: Mapping[str, str],
        rebuilt: Mapping[str, str],
        without: Collection[str] = (),
    ) -> dict[str, str]:
        return {name: value for name, value in live.items() if not name.startswith("tideline.")}

    def overwrite(
        self, rows: DataFrame, covered: str, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        base = self._log.newest()
        held = self._table.rows(base).where(f"NOT coalesce({covered}, false)")
        found = self._put(base, "OVERWRITE", held.unionByName(rows), commit_metadata)
        return None if found is None else RowCounts(rows.count())

    def _put(
        self, base: Entry, operation: str, rows: DataFrame, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        if base.applied.get(commit_metadata.app_id, -1) >= commit_metadata.to_manifest:
            return None
        written, count = self._table.write(rows), rows.count()
        self._table.commit(
            base,
            operation,
            changes_data=True,
            commit_metadata=commit_metadata.text(),
            numbers={commit_metadata.app_id: commit_metadata.to_manifest},
            rows_written=count,
            **written,
        )
        return RowCounts(count)

    def merge(
        self, rows: RowMerge, commit_metadata: CommitMetadata, *, still: bool = False
    ) -> RowCounts | None:
        base = self._log.newest()
        if base.applied.get(commit_metadata.app_id, -1) >= commit_metadata.to_manifest:
            return None
        return self._merge(
            base, rows, commit_metadata, {commit_metadata.app_id: commit_metadata.to_manifest}
        )

    def repair(self, rows: RowMerge, commit_metadata: CommitMetadata) -> None:
        self._merge(self._log.newest(), rows, commit_metadata, {})

    def _merge(
        self,
        base: Entry,
        merge: RowMerge,
        commit_metadata: CommitMetadata,
        numbers: Mapping[str, int],
    ) -> RowCounts:
        held = self._table.rows(base)
        found = judged(held, self._session.table(merge.source), merge).persist()
        try:
            counts = found.groupBy(KIND).count().collect()
            counted: dict[str, int] = {row[KIND]: row["count"] for row in counts}
            written = self._table.write(
                found.where(~col(KIND).isin("deleted", "away")).select(
                    *(col(name) for name in held.columns)
                )
            )
        finally:
            found.unpersist()
        self._table.commit(
            base,
            "MERGE",
            changes_data=True,
            commit_metadata=commit_metadata.text(),
            numbers=dict(numbers),
            **written,
        )
        return RowCounts(*(counted.get(kind, 0) for kind in ("inserted", "updated", "deleted")))

    def remove(self) -> None:
        shutil.rmtree(self._log.path, ignore_errors=True)

    def drop_versions(self, seen: TargetVersion) -> None:
        """It has one version."""

    def set_property(self, name: str, value: str | None) -> None:
        base = self._log.newest()
        properties = {one: text for one, text in base.properties.items() if one != name}
        if value is not None:
            properties[name] = value
        self._table.commit(base, "SET PROPERTY", properties=properties)

    def admit_readers(self, without: Collection[str] = ()) -> bool:
        return False


TOY = TableFormat(open=ToyTarget, conflicts=(CONFLICT,))
