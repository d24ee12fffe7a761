# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""A BigQuery table as a target: the commits that we make.

Spark reads and folds the parts. The rows that come of it are staged, and a script brings them to
the table in BigQuery, in the same commit as the applied number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession, types

from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.external_commits import SinceOurs, TableCommit, since_ours
from tideline.contract.plan import CommitMetadata, TablePlan
from tideline.contract.table_layout import NO_LAYOUT, TableLayout
from tideline.warehouse.bigquery.log import Commit, CommitLog
from tideline.warehouse.bigquery.removal import remove_tables
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess, after
from tideline_spark.formats.bigquery.columns import BigQueryColumns
from tideline_spark.formats.bigquery.counts import rows_changed
from tideline_spark.formats.bigquery.description import BigQueryDescription
from tideline_spark.formats.bigquery.files import BigQueryFiles
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.bigquery.layout import laid_out, making
from tideline_spark.formats.bigquery.reading import Reading, as_of
from tideline_spark.formats.bigquery.staging import staged
from tideline_spark.formats.bigquery.stream_connection import check_write_client
from tideline_spark.formats.bigquery.stream_key import check_fresh, key_of, key_properties
from tideline_spark.formats.bigquery.streaming import send_rows
from tideline_spark.formats.bigquery.types import bigquery_type, check_key, check_names
from tideline_spark.formats.bigquery.version import (
    BigQueryVersion,
    columns_from_json,
    columns_json,
    columns_of,
)
from tideline_spark.formats.state import RowCounts, TargetSnapshot, TargetVersion
from tideline_spark.formats.statements import SOURCE, RowMerge, of_source, of_target
from tideline_spark.schemas import column as col
from tideline_spark.schemas import no_rows

_OURS = "tideline."


class BigQueryTarget:
    """See `Target`."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self._session = session
        self._access = BigQueryAccess(session, url)
        self._reading = Reading(self._access)
        self.schema = BigQueryColumns(self._access)
        self.description = BigQueryDescription(self._access)
        self.files = BigQueryFiles(self._access)

    def look(self) -> BigQueryVersion:
        """See `Target`."""
        return BigQueryVersion(self._access.read())

    def snapshot(self) -> TargetSnapshot:
        """See `Target`."""
        return self.look().snapshot()

    @property
    def bytes_billed(self) -> int:
        """See `Target`."""
        return self._access.jobs.bytes_billed

    def newest(self) -> int:
        """See `Target`."""
        return self._access.read().version

    def rows(self, version: int | None = None) -> DataFrame:
        """See `Target`. All rows are read at once, into files of the driver's."""
        log, client, name = self._access.read(), self._access.client, self._access.name
        if log.table is None or not log.exists:
            raise InvariantBroken(f"the table {name} is gone")
        check_fresh(self._access, log)
        if version is None or version == log.version:
            if log.streamed:  # Rows that are not brought in yet are in a query's result alone.
                return self._reading.selected(columns_of(log), ())
            return self._reading.frame(client.list_rows(log.table), columns_of(log))
        commit = log.at(version)
        if commit is None:
            raise InvariantBroken(f"version {version} of {name} is not in its log")
        columns = columns_from_json(commit.entry.columns)
        return self._reading.selected(columns, (), as_of(client, commit))

    def rows_of(
        self, columns: Sequence[str], where: Sequence[str], among: DataFrame | None = None
    ) -> DataFrame:
        """See `Target`."""
        log, name = self._access.read(), self._access.name
        if log.table is None or not log.exists:
            raise InvariantBroken(f"the table {name} is gone")
        check_fresh(self._access, log)
        known = columns_of(log)
        schema = types.StructType([known[one] for one in columns])
        conditions = [f"({DIALECT.expression(one)})" for one in where]
        if among is None:
            return self._reading.selected(schema, conditions)
        with staged(self._access, among) as keys:
            if not keys.rows:
                return no_rows(self._session, schema)
            same = " AND ".join(
                f"{DIALECT.expression(of_target(one))} = {DIALECT.expression(of_source(one))}"
                for one in among.columns
            )
            found = f"EXISTS (SELECT 1 FROM {keys.sql} AS {SOURCE} WHERE {same})"
            return self._reading.selected(schema, [*conditions, found])

    def commits(self, version: int) -> Iterator[TableCommit]:
        """See `Target`."""
        return self._access.read().table_commits(version)

    def since_ours(self, commits: Iterable[TableCommit], app_id: str) -> SinceOurs:
        """See `Target`."""
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
        log = self._access.make_log()
        if log.exists and not plan.replace:
            raise TargetOvertaken
        if log.table is not None and log.newest is None:
            raise Misconfigured(
                f"{self._access.name} is a table that Tideline has not made",
                hint="nothing was done to it; remove or rename it, or set"
                " warehouse.bigquery.dataset_prefix",
            )
        if plan.replace and _has_applied(log, commit_metadata):
            return None
        rows = self._session.table(view)
        key = plan.schema.key
        if layout.streamed:
            check_write_client()
            properties = {**properties, **key_properties(key)}
        made = self._make(log, rows, properties, commit_metadata, layout, key)
        return RowCounts(made.entry.rows_written)

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
        log = self._access.read()
        if not log.exists or _has_applied(log, commit_metadata):
            return None
        rows = self._session.table(view)
        key = key_of(properties) if layout.streamed else ()
        return self._make(log, rows, properties, commit_metadata, layout, key).version

    def _make(
        self,
        log: CommitLog,
        rows: DataFrame,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
        layout: TableLayout,
        key: Collection[str],
    ) -> Commit:
        """Make or replace the table from ``rows``; return the commit that did."""
        check_names(rows.schema)
        check_key(rows.schema, key)
        how = laid_out(rows.schema, layout, key)
        with staged(self._access, rows) as found:
            values = ", ".join(
                f"CAST({DIALECT.quote(one.name)} AS {bigquery_type(one.dataType)})"
                f" AS {DIALECT.quote(one.name)}"
                for one in rows.schema.fields
            )
            entry = after(
                log,
                commit_metadata,
                "CREATE OR REPLACE TABLE",
                changes_data=True,
                numbers={commit_metadata.app_id: commit_metadata.to_manifest},
                properties=dict(properties),
                columns=columns_json(rows.schema),
                rows_written=found.rows,
            )
            query = f"SELECT {values} FROM {found.sql}"
            sql = making(self._access, rows.schema, how, query, key if layout.streamed else ())
            now = self._access.declare(log, sql, entry, "to make the table")
        made = now.newest
        if made is None or made.entry != entry:
            raise TargetOvertaken
        return made

    def overwrite(
        self, rows: DataFrame, covered: str, commit_metadata: CommitMetadata
    ) -> RowCounts | None:
        """See `Target`."""
        log = self._access.read()
        if not log.exists or _has_applied(log, commit_metadata):
            return None
        table, listed = self._access.name.sql, ", ".join(map(DIALECT.quote, rows.columns))
        with staged(self._access, rows) as found:
            statements = [
                f"DELETE FROM {table} WHERE {DIALECT.expression(covered)}",
                f"INSERT {table} ({listed}) SELECT {listed} FROM {found.sql}",
            ]
            self._commit(log, statements, commit_metadata, "OVERWRITE", moves=True)
        return RowCounts(found.rows)

    def merge(
        self, rows: RowMerge, commit_metadata: CommitMetadata, *, still: bool = False
    ) -> RowCounts | None:
        """See `Target`."""
        log = self._access.read()
        if not log.exists or _has_applied(log, commit_metadata):
            return None
        return self._merge(log, rows, commit_metadata, moves=True)

    def repair(self, rows: RowMerge, commit_metadata: CommitMetadata) -> None:
        """See `Target`."""
        self._merge(self._access.read(), rows, commit_metadata, moves=False)

    def stream(self, rows: DataFrame, commit_metadata: CommitMetadata) -> RowCounts | None:
        """See `StreamedTarget`. Of the rows of a run that is killed some are in the table before
        its number is: the next run brings them again."""
        log = self._access.read()
        if not log.exists or _has_applied(log, commit_metadata):
            return None
        counts = send_rows(self._access, log, rows)
        numbers = {commit_metadata.app_id: commit_metadata.to_manifest}
        entry = after(log, commit_metadata, "STREAM", changes_data=True, numbers=numbers)
        self._access.commit(log, [], entry, "to record streamed rows")
        return counts

    def _merge(
        self, log: CommitLog, rows: RowMerge, commit_metadata: CommitMetadata, *, moves: bool
    ) -> RowCounts:
        text, given = rows.sql(rows.source), self._session.table(rows.source)
        # What only Spark's own steps need has no type in BigQuery.
        read = [name for name in given.columns if of_source(name) in text]
        with staged(self._access, given.select(*map(col, read))) as found:
            translated = replace(DIALECT.merge(rows), source=found.sql)
            sql = translated.sql(self._access.name.sql, "")
            job = self._commit(log, [sql], commit_metadata, "MERGE", moves=moves)
        return rows_changed(self._access, job)

    def _commit(
        self,
        log: CommitLog,
        statements: list[str],
        commit_metadata: CommitMetadata,
        operation: str,
        *,
        moves: bool,
    ) -> object:
        numbers = {commit_metadata.app_id: commit_metadata.to_manifest} if moves else {}
        entry = after(log, commit_metadata, operation, changes_data=True, numbers=numbers)
        return self._access.commit(log, statements, entry, "to merge rows")

    def properties_after_swap(
        self,
        live: Mapping[str, str],
        rebuilt: Mapping[str, str],
        without: Collection[str] = (),
    ) -> dict[str, str]:
        """See `Target`."""
        return {name: value for name, value in live.items() if not name.startswith(_OURS)}

    def remove(self) -> None:
        """See `Target`."""
        remove_tables(self._access.client, self._access.name)

    def drop_versions(self, seen: TargetVersion) -> None:
        """See `Target`: no commit reads former ones; `BigQueryFiles.vacuum` removes them."""

    def set_property(self, name: str, value: str | None) -> None:
        """See `Target`."""
        log = self._access.read()
        properties = dict(log.entry.properties)
        properties.pop(name, None)
        properties |= {} if value is None else {name: value}
        entry = after(log, None, "SET PROPERTIES", modified=log.looked_ms, properties=properties)
        self._access.commit(log, [], entry, "to set a property")

    def admit_readers(self, without: Collection[str] = ()) -> bool:
        """See `Target`: no reader lacks anything."""
        return False


def _has_applied(log: CommitLog, commit_metadata: CommitMetadata) -> bool:
    return log.entry.applied.get(commit_metadata.app_id, -1) >= commit_metadata.to_manifest
