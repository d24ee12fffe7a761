# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""A BigQuery table through one client: its log, and the commits to both.

A commit is a script: one transaction with the rows, and with the row of the log. It begins by
looking whether the log's newest version is still the one that was read, and writes to that row: of
two that read the same, BigQuery refuses one. A statement that no transaction may hold is `Pending`
in the log first.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tideline.contract.errors import Misconfigured
from tideline.contract.plan import CommitMetadata
from tideline.warehouse.bigquery.client import LABEL, BigQueryPlace, asking, open_client
from tideline.warehouse.bigquery.log import (
    NO_VERSION,
    CommitEntry,
    CommitLog,
    Pending,
    modified_ms,
    read_log,
)
from tideline.warehouse.bigquery.names import PLACE_SETTING, name_of
from tideline_spark.dialects.bigquery import BigQueryDialect
from tideline_spark.formats.bigquery.jobs import (
    OVERTAKEN,
    JobFailed,
    Jobs,
    TargetOvertaken,
    job_name,
)

if TYPE_CHECKING:
    from google.cloud.bigquery import QueryJob
    from google.cloud.bigquery.table import RowIterator

DIALECT = BigQueryDialect()
_GUARD = "newest AND version = {version} AND pending IS {pending}"


class BigQueryAccess:
    """One table by its url; made and used in one thread."""

    def __init__(self, session: SparkSession, url: str) -> None:
        text = session.conf.get(PLACE_SETTING, "")
        if not text:
            raise Misconfigured(
                "this Spark was started without the project of BigQuery tables",
                hint="run the job by `tideline` or by Airflow's tasks, which set it",
            )
        self.session, self.name = session, name_of(url)
        self.place = BigQueryPlace.parse(text)
        self.client = open_client(self.place)
        self.labels = {LABEL: "true", **self.place.labels}
        self.jobs = Jobs(self.client, self.place, self.labels)

    def read(self) -> CommitLog:
        """Return the table as it is now, once nothing is pending."""
        while True:
            with asking(f"to read the log of {self.name}"):
                log = read_log(self.client, self.name)
            if not log.commits or log.commits[0].pending is None:
                return log
            self._settle(log)

    def ask(self, sql: str) -> RowIterator:
        """Run a query; return its rows as Google's iterator."""
        with asking(f"to read rows of {self.name}"):
            return self.jobs.query(sql)

    def make_log(self) -> CommitLog:
        """Make the table's dataset and log where they are not there; return the table as it is."""
        # heavy: only pipelines with BigQuery tables need it
        from google.api_core.exceptions import NotFound
        from google.cloud.bigquery import Dataset, DatasetReference

        log = self.read()
        if log.commits:
            return log
        dataset = Dataset(DatasetReference(self.name.project, self.name.dataset))
        dataset.location = self.place.location
        with asking(f"to make the dataset {self.name.dataset}"):
            try:
                self.client.get_dataset(dataset.reference)
            except NotFound:
                self.client.create_dataset(dataset, exists_ok=True)
        first = _row(NO_VERSION, "''", CommitEntry())
        listed = ", ".join(f"{value} AS {name}" for name, value in first.items())
        with asking(f"to make the log of {self.name}"):
            self.jobs.query(f"CREATE TABLE IF NOT EXISTS {self.name.log.sql} AS SELECT {listed}")
        return self.read()

    def commit(
        self,
        log: CommitLog,
        statements: Sequence[str],
        entry: CommitEntry,
        doing: str,
    ) -> QueryJob:
        """Run ``statements`` and record ``entry`` as the version after ``log``, in one transaction.

        Of runs that would do the same only one does. Raises TargetOvertaken where the table is no
        longer as in ``log``.
        """
        if statements:
            self._check_unchanged(log)
        name = job_name(self.name, _life(log), log.version, doing, entry.text())
        newest = log.commits[0].version
        # Its job's end is when the rows changed; without rows nothing did.
        job = "@@script.job_id" if statements else "''"
        recorded = self._recorded(newest, _row(log.version + 1, job, entry))
        guard = _GUARD.format(version=newest, pending="NULL")
        return self._run(name, _script([self._check(guard), *recorded, *statements]), doing)

    def declare(self, log: CommitLog, sql: str, after: CommitEntry, doing: str) -> CommitLog:
        """Run ``sql``, which no transaction may hold, and record ``after`` as the version after
        ``log``; return the table as it is then. Raises as `commit` does.

        Each declaration has a name of its own, which the log keeps: one that could not be done
        leaves the log as it was, and would else count as the next one's.
        """
        self._check_unchanged(log)
        newest = log.commits[0].version
        name = job_name(self.name, _life(log), log.version, doing, sql, secrets.token_hex(16))
        pending = Pending(name, sql, after, log.version + 1)
        text = DIALECT.literal(pending.text())
        guard = _GUARD.format(version=newest, pending="NULL")
        update = f"UPDATE {self.name.log.sql} SET pending = {text} WHERE {guard}"
        self._run(f"{name}-declared", _script([self._check(guard), update]), doing)
        with asking(f"to read the log of {self.name}"):
            now = read_log(self.client, self.name)
        if now.commits[0].pending == pending:
            self._settle(now)
        return self.read()

    def _settle(self, log: CommitLog) -> None:
        """Run the statement that ``log`` has pending, and record it; where it cannot be run, that
        it was not."""
        newest, doing = log.commits[0], f"to change the table {self.name}"
        pending = newest.pending
        assert pending is not None
        guard = _GUARD.format(version=newest.version, pending="NOT NULL")
        undone = f"UPDATE {self.name.log.sql} SET pending = NULL WHERE {guard}"
        try:
            job = self.jobs.run(pending.job, pending.sql, doing)
        except JobFailed as failed:
            sql = _script([self._check(guard), undone])
            self._settled(f"{pending.job}-undone", sql, doing)
            raise failed.error from None
        row = _row(pending.version, DIALECT.literal(job.job_id), pending.after)
        sql = _script([self._check(guard), undone, *self._recorded(newest.version, row)])
        self._settled(f"{pending.job}-done", sql, doing)

    def _settled(self, name: str, sql: str, doing: str) -> None:
        try:
            self._run(name, sql, doing)
        except TargetOvertaken:  # Another run has recorded the same.
            return

    def _run(self, name: str, sql: str, doing: str) -> QueryJob:
        try:
            return self.jobs.run(name, sql, doing)
        except JobFailed as failed:
            raise failed.error from None

    def _check(self, guard: str) -> str:
        count = f"(SELECT COUNT(*) FROM {self.name.log.sql} WHERE {guard})"
        return f"ASSERT {count} = 1 AS '{OVERTAKEN}'"

    def _recorded(self, newest: int, row: Mapping[str, str]) -> list[str]:
        log = self.name.log.sql
        names, values = ", ".join(row), ", ".join(row.values())
        return [
            f"UPDATE {log} SET newest = FALSE WHERE newest AND version = {newest}",
            f"INSERT {log} ({names}) VALUES ({values})",
        ]

    def _check_unchanged(self, log: CommitLog) -> None:
        """Raise TargetOvertaken where others have changed the table since ``log`` was read."""
        # heavy: as above
        from google.api_core.exceptions import NotFound

        with asking(f"to look at {self.name}"):
            try:
                now: Any = self.client.get_table(str(self.name))
            except NotFound:
                now = None
        before = log.table
        if (now is None) != (before is None):
            raise TargetOvertaken
        if now is not None and _is_changed(log, now):
            raise TargetOvertaken


def after(
    log: CommitLog, commit_metadata: CommitMetadata | None, operation: str, **changes: Any
) -> CommitEntry:
    """Return the entry of a commit after ``log``: the table as it is, but for ``changes``.
    ``numbers`` among these are added to what it has applied."""
    before, numbers = log.entry, changes.get("numbers", {})
    known = {
        "operation": operation,
        "applied": {**before.applied, **numbers},
        "properties": before.properties,
        "columns": before.columns,
        "commit_metadata": "" if commit_metadata is None else commit_metadata.text(),
    }
    return CommitEntry(**{**known, **changes})


def _is_changed(log: CommitLog, now: Any) -> bool:
    """Return whether the table ``now`` is another than in ``log``; of a streamed one, which
    BigQuery changes at times of its own, whether its columns are others."""
    before: Any = log.table
    if log.streamed:
        return [one.name for one in now.schema] != [one.name for one in before.schema]
    return modified_ms(now) != modified_ms(before)


def _row(version: int, job: str, entry: CommitEntry) -> dict[str, str]:
    """Return the row of a log, as SQL by column; ``job`` is SQL, too."""
    return {
        "version": str(version),
        "newest": "TRUE",
        "committed_at": "CURRENT_TIMESTAMP()",
        "job": job,
        "entry": DIALECT.literal(entry.text()),
        "pending": "CAST(NULL AS STRING)",
    }


def _script(statements: Sequence[str]) -> str:
    return ";\n".join(["BEGIN TRANSACTION", *statements, "COMMIT TRANSACTION", ""])


def _life(log: CommitLog) -> str:
    """Return what tells this log from one of the same name that was removed: when it began."""
    return str(log.commits[-1].at_us)
