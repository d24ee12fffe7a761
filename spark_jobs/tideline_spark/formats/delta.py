"""Everything that knows Delta: what a table's log says, and the commits we make.

A commit of ours carries the transaction id (app id, version = manifest number) and, as user
metadata, a JSON `Stamp`. Data and number move in that one commit. Delta skips a commit whose
number is not above the table's, and checks no more than that; the caller checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tideline.contract.delta_log import (
    Commit,
    SinceOurs,
    parse_commit,
    since_ours,
)
from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.plan import Stamp, TablePlan
from tideline_spark.formats.delta_version import BUILD, MODE, VECTORS, Snapshot, Version
from tideline_spark.schemas import literal, quote

COMMITS_MAX = 1_000
"""Commits of others that are looked through for our last one."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MATERIALIZED = "spark.databricks.delta.merge.materializeSource"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_MAPPING = ("delta.columnMapping.mode", "name")


class DeltaTable:
    """One table by its address, through a Spark session of its own; made and used in one thread."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self._session = session
        self._url = url
        jvm: Any = session._jvm
        # Delta's own calls look for a session in the thread; statements set it for themselves.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        self._jvm = jvm
        self.own_properties: Mapping[str, str] = {}
        """What a table that is made here has besides."""

    @property
    def name(self) -> str:
        """The table as SQL names it."""
        return f"delta.{quote(self._url)}"

    def look(self) -> Version:
        """The table's newest version."""
        return Version(self._look_up()._2(), self.commits)

    def snapshot(self) -> Snapshot:
        """The newest version of the table, with all that is known of it."""
        return self.look().snapshot()

    def newest(self) -> int:
        """The table's version now, -1 where no table is."""
        return self.look().number

    def files(self) -> DataFrame:
        """The files of the newest version: the log's ``add`` actions in force."""
        return DataFrame(self._look_up()._2().allFiles().toDF(), self._session)

    def since_ours(self, commits: Iterable[Commit], app_id: str) -> SinceOurs:
        """Look back through ``commits``, newest first, to the last one that carries ``app_id``."""
        return since_ours(commits, app_id, self._columns_at)

    def commits(self, version: int) -> Iterator[Commit]:
        """Commits from ``version`` back, as far as the log's files and `COMMITS_MAX` reach."""
        path = self._jvm.org.apache.hadoop.fs.Path
        folder = path(path(self._url), "_delta_log")
        files = folder.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())
        for number in range(version, max(-1, version - COMMITS_MAX), -1):
            file = path(folder, f"{number:020d}.json")
            if not files.exists(file):
                return
            stream = files.open(file)
            try:
                at_us = 1_000 * int(files.getFileStatus(file).getModificationTime())
                yield parse_commit(number, bytes(stream.readAllBytes()), at_us)
            finally:
                stream.close()

    def begin(self) -> Any:
        """Delta's own transaction, from the newest version on."""
        return self._look_up()._1().startTransaction()

    def create(
        self, view: str, plan: TablePlan, stamp: Stamp, partitions: Sequence[str] = ()
    ) -> int | None:
        """Make the table, anew if the plan says so, from the rows of ``view``; one commit.

        Returns the rows written, or None when Delta skipped the commit as applied before.
        """
        properties = {
            VECTORS: str(plan.deletion_vectors).lower(),
            "tideline.pipeline": stamp.pipeline,
            "tideline.incarnation": stamp.incarnation,
            "tideline.table": plan.table,
            **made_as(plan.mode, plan.build),
            **self.own_properties,
        }
        if any(_NEEDS_MAPPING & set(name) for name in self._session.table(quote(view)).columns):
            properties |= dict([_MAPPING])
        half_made = self._half_made(plan.table)
        before = self.newest()
        anew = plan.replace or (half_made and before < 0)
        verb = "CREATE OR REPLACE TABLE" if anew else "CREATE TABLE"
        with self._committing(stamp, counted=True):
            self._session.sql(
                f"{verb} {self.name} USING delta TBLPROPERTIES ({_properties(properties)})"
                f"{_partitioned(partitions)} AS TABLE {quote(view)}"
            )
        after = self.newest()
        return None if after == before else self._rows_written(after)

    def replace(
        self, view: str, properties: Mapping[str, str], stamp: Stamp, partitions: Sequence[str]
    ) -> int | None:
        """Put the rows of ``view``, and ``properties``, in the place of all that the table has; one
        commit. Returns its version, or None when Delta skipped it as applied before.
        """
        before = self.newest()
        with self._committing(stamp, counted=True):
            self._session.sql(
                f"CREATE OR REPLACE TABLE {self.name} USING delta"
                f" TBLPROPERTIES ({_properties(properties)})"
                f"{_partitioned(partitions)} AS TABLE {quote(view)}"
            )
        for commit in self.commits(self.newest()):
            if commit.version <= before:
                break
            if commit.numbers.get(stamp.app_id) == stamp.b:
                return commit.version
        return None

    def write_over(self, rows: DataFrame, covered: str, stamp: Stamp) -> int | None:
        """Put ``rows`` in the place of all rows that ``covered`` is true of; one commit.

        Returns the rows written, or None when Delta skipped the commit as applied before.
        """
        before = self.newest()
        with self._committing(stamp, counted=True):
            rows.write.format("delta").mode("overwrite").option("replaceWhere", covered).save(
                self._url
            )
        after = self.newest()
        return None if after == before else self._rows_written(after)

    def merge(
        self, statement: str, stamp: Stamp, *, still: bool = False
    ) -> Mapping[str, int] | None:
        """Run one MERGE as one commit; rows by what became of them, None when Delta skipped it.

        ``still``: however often its source is read, it is the same, so that Delta needs no copy.
        """
        copied = {_MATERIALIZED: "none"} if still else {}
        with self._committing(stamp, counted=True), self._set(copied):
            rows = self._session.sql(statement).collect()
        if not rows:
            return None
        return {name: int(count) for name, count in rows[0].asDict().items()}

    def repair(self, statement: str, stamp: Stamp) -> None:
        """Run a statement whose commit is known as ours and moves no number."""
        with self._committing(stamp, counted=False):
            self._session.sql(statement).collect()

    def forget_vectors(self) -> bool:
        """Have the table not say any more that its readers must know deletion vectors, if it says
        so, has none and makes none; whether it did. Nothing is read or written but its log."""
        found, delta = self._look_up()._2(), self._jvm.org.apache.spark.sql.delta
        feature = getattr(getattr(delta, "DeletionVectorsTableFeature$"), "MODULE$")
        makes = found.metadata().configuration().get(VECTORS)
        if makes.isDefined() and makes.get() == "true":
            return False
        if not found.protocol().isFeatureSupported(feature):
            return False
        self._session.sql(f"ALTER TABLE {self.name} DROP FEATURE deletionVectors")
        return True

    def set_property(self, name: str, value: str | None) -> None:
        """Set or (None) remove a property of the table's, in a commit that says nothing else."""
        change = f"UNSET TBLPROPERTIES IF EXISTS ({literal(name)})"
        if value is not None:
            change = f"SET TBLPROPERTIES ({literal(name)} = {literal(value)})"
        self._session.sql(f"ALTER TABLE {self.name} {change}")

    @contextmanager
    def _committing(self, stamp: Stamp, *, counted: bool) -> Iterator[None]:
        with self.stamped(stamp, *((stamp.app_id, stamp.b) if counted else ())):
            yield

    @contextmanager
    def stamped(self, stamp: Stamp, app: str | None = None, number: int = 0) -> Iterator[None]:
        """The transaction id and metadata are session settings: set for one statement only."""
        settings = {_METADATA: stamp.text()}
        if app is not None:
            settings |= {_TXN_APP: app, _TXN_VERSION: str(number)}
        with self._set(settings):
            yield

    @contextmanager
    def _set(self, settings: Mapping[str, str]) -> Iterator[None]:
        for name, value in settings.items():
            self._session.conf.set(name, verbatim(value))
        try:
            yield
        finally:
            for name in settings:
                self._session.conf.unset(name)

    def _look_up(self) -> Any:
        """Delta's own pair: the table's log, and the snapshot of its newest version."""
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(self._session._jsparkSession, self._url)

    def _half_made(self, table: str) -> bool:
        """Whether a run was killed while it made the table, or another one makes it now: its log
        has no commit. For `CREATE TABLE` it exists as soon as anything lies at its path.

        Raises Misconfigured where something else lies there.
        """
        path = self._jvm.org.apache.hadoop.fs.Path
        folder = path(self._url)
        files = folder.getFileSystem(self._session._jsparkSession.sessionState().newHadoopConf())
        if files.exists(path(folder, "_delta_log")):
            return self.newest() < 0
        if files.exists(folder) and len(files.listStatus(folder)):
            raise Misconfigured(
                f"files that are no table lie where {table} is to be made: {self._url}",
                hint="remove or move them, or name another warehouse.url",
            )
        return False

    def _columns_at(self, version: int) -> list[str]:
        reader = self._session.read.format("delta").option("versionAsOf", version)
        return reader.load(self._url).columns

    def _rows_written(self, version: int) -> int:
        for commit in self.commits(version):
            return commit.rows_written
        return 0


def made_as(mode: Mode, build: int) -> dict[str, str]:
    """The table properties that say how a target is kept, and which rebuild made it."""
    return {MODE: mode.value, **({BUILD: str(build)} if build else {})}


def verbatim(value: str) -> str:
    """``value``, which reads as it is set. Raises InvariantBroken for one that Spark would put
    something else in the place of (``${…}``, by `ConfigReader`)."""
    if "${" in value:
        raise InvariantBroken("a setting of Spark's session is to hold a reference")
    return value


def _partitioned(columns: Sequence[str]) -> str:
    return f" PARTITIONED BY ({', '.join(quote(name) for name in columns)})" if columns else ""


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
