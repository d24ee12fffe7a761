"""Everything that knows Delta: what a table's log says, and the commits we make.

A commit of ours carries the transaction id (app id, version = manifest number) and, as user
metadata, a JSON `Stamp`. Data and number move in that one commit. Delta skips a commit whose
number is not above the table's, and checks no more than that; the caller checks the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import SparkSession, types

from spark_jobs.schemas import AddColumn, SchemaStep, literal, quote
from tideline.contract.plan import Stamp, TablePlan

COMMITS_MAX = 1_000
"""Commits of others that are looked through for our last one."""

_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_MAPPING = ("delta.columnMapping.mode", "name")
_WIDENING = ("delta.enableTypeWidening", "true")
_LOCAL_TIME = ("delta.feature.timestampNtz", "supported")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as its log describes it now; ``version`` is -1 where no table is."""

    version: int
    applied: Mapping[str, int]
    properties: Mapping[str, str]
    schema: types.StructType

    @property
    def exists(self) -> bool:
        return self.version >= 0


@dataclass(frozen=True, slots=True)
class SinceOurs:
    """What the log holds after our last commit, newest first.

    ``foreign`` names data-changing commits by others; ``went_back`` says that one of them set the
    content back behind our last commit. ``stamp`` is that commit's, None when there is none.
    """

    foreign: tuple[str, ...] = ()
    went_back: bool = False
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table's log; ``numbers``: the transaction versions it sets, by app id."""

    version: int
    operation: str
    restored_to: int | None
    changes_data: bool
    numbers: Mapping[str, int]
    stamp: Stamp | None
    rows_written: int


class DeltaTable:
    """One table by its address, through a Spark session of its own; made and used in one thread."""

    def __init__(self, session: SparkSession, url: str) -> None:
        self._session = session
        self._url = url
        jvm: Any = session._jvm
        # Delta's own calls look for a session in the thread; statements set it for themselves.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        self._jvm = jvm

    @property
    def name(self) -> str:
        """The table as SQL names it."""
        return f"delta.{quote(self._url)}"

    def snapshot(self) -> Snapshot:
        """The newest version of the table."""
        jsession = self._session._jsparkSession
        pair = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(
            jsession, self._url
        )
        snapshot = pair._2()
        if snapshot.version() < 0:
            return Snapshot(-1, {}, {}, types.StructType([]))
        return Snapshot(
            version=int(snapshot.version()),
            applied={app: int(version) for app, version in _entries(snapshot.transactions())},
            properties=dict(_entries(snapshot.metadata().configuration())),
            schema=types.StructType.fromJson(json.loads(snapshot.schema().json())),
        )

    def newest(self) -> int:
        """The table's version now, -1 where no table is; cheaper than a `snapshot`."""
        log = self._jvm.org.apache.spark.sql.delta.DeltaLog
        pair = log.forTableWithSnapshot(self._session._jsparkSession, self._url)
        return int(pair._2().version())

    def committed_number(self, app_id: str) -> int | None:
        """The number in the newest commit that carries one of ``app_id``, as the log says."""
        for commit in self.commits(self.newest()):
            if app_id in commit.numbers:
                return commit.numbers[app_id]
        return self.snapshot().applied.get(app_id)

    def since_ours(self, version: int, app_id: str) -> SinceOurs:
        """Look back from ``version`` to the last commit that carries ``app_id``."""
        foreign: list[str] = []
        restored: list[int | None] = []
        for commit in self.commits(version):
            if app_id in commit.numbers or (commit.stamp and commit.stamp.app_id == app_id):
                ours = commit.version
                went_back = any(to is None or to < ours for to in restored)
                return SinceOurs(tuple(foreign), went_back, commit.stamp)
            if commit.changes_data:
                foreign.append(f"version {commit.version}: {commit.operation}")
            if commit.operation == "RESTORE":
                restored.append(commit.restored_to)
        return SinceOurs(tuple(foreign), bool(restored), None)

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
                yield _commit(number, bytes(stream.readAllBytes()))
            finally:
                stream.close()

    def evolve(self, steps: Sequence[SchemaStep], snapshot: Snapshot) -> None:
        """Take each schema step, with the table features it needs. Steps may be repeated."""
        if not steps:
            return
        wanted = _features(steps, snapshot)
        if wanted:
            self._session.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({_properties(wanted)})")
        for step in steps:
            column = f"{quote(step.name)} {step.data_type.simpleString()}"
            if isinstance(step, AddColumn):
                place = "FIRST" if step.after is None else f"AFTER {quote(step.after)}"
                statement = f"ADD COLUMNS ({column} {place})"
            else:
                typed = f"{quote(step.name)} TYPE {step.data_type.simpleString()}"
                statement = f"ALTER COLUMN {typed}"
            self._session.sql(f"ALTER TABLE {self.name} {statement}")

    def create(self, view: str, plan: TablePlan, stamp: Stamp) -> int | None:
        """Make the table, anew if the plan says so, from the rows of ``view``; one commit.

        Returns the rows written, or None when Delta skipped the commit as applied before.
        """
        properties = {
            "delta.enableDeletionVectors": "true",
            "tideline.pipeline": stamp.pipeline,
            "tideline.incarnation": stamp.incarnation,
            "tideline.table": plan.table,
        }
        if any(_NEEDS_MAPPING & set(name) for name in self._session.table(quote(view)).columns):
            properties |= dict([_MAPPING])
        before = self.newest()
        verb = "CREATE OR REPLACE TABLE" if plan.replace else "CREATE TABLE"
        with self._committing(stamp, counted=True):
            self._session.sql(
                f"{verb} {self.name} USING delta TBLPROPERTIES ({_properties(properties)})"
                f" AS TABLE {quote(view)}"
            )
        after = self.newest()
        return None if after == before else self._rows_written(after)

    def merge(self, statement: str, stamp: Stamp) -> Mapping[str, int] | None:
        """Run one MERGE as one commit; rows by what became of them, None when Delta skipped it."""
        with self._committing(stamp, counted=True):
            rows = self._session.sql(statement).collect()
        if not rows:
            return None
        return {name: int(count) for name, count in rows[0].asDict().items()}

    def repair(self, statement: str, stamp: Stamp) -> None:
        """Run a statement whose commit is known as ours and moves no number."""
        with self._committing(stamp, counted=False):
            self._session.sql(statement).collect()

    @contextmanager
    def _committing(self, stamp: Stamp, *, counted: bool) -> Iterator[None]:
        """The transaction id and metadata are session settings: set for one statement only."""
        settings = {_METADATA: msgspec.json.encode(stamp).decode()}
        if counted:
            settings |= {_TXN_APP: stamp.app_id, _TXN_VERSION: str(stamp.b)}
        for name, value in settings.items():
            self._session.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                self._session.conf.unset(name)

    def _rows_written(self, version: int) -> int:
        for commit in self.commits(version):
            return commit.rows_written
        return 0


def _commit(version: int, raw: bytes) -> Commit:
    info: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    changes_data = False
    for line in raw.splitlines():
        action = json.loads(line)
        info = action.get("commitInfo", info)
        if "txn" in action:
            numbers[action["txn"]["appId"]] = int(action["txn"]["version"])
        for kind in ("add", "remove"):
            changes_data = changes_data or bool(action.get(kind, {}).get("dataChange", False))
    return Commit(
        version=version,
        operation=str(info.get("operation", "unknown")),
        restored_to=_restored_to(info.get("operationParameters", {})),
        changes_data=changes_data,
        numbers=numbers,
        stamp=Stamp.parse(info.get("userMetadata")),
        rows_written=int(info.get("operationMetrics", {}).get("numOutputRows", 0)),
    )


def _restored_to(parameters: Mapping[str, Any]) -> int | None:
    version = str(parameters.get("version"))
    return int(version) if version.isdecimal() else None


def _features(steps: Sequence[SchemaStep], snapshot: Snapshot) -> dict[str, str]:
    """Table properties that the steps need and the table has not; each costs readers something."""
    wanted = dict[str, str]()
    for step in steps:
        if not isinstance(step, AddColumn):
            wanted |= dict([_WIDENING])
            continue
        if _NEEDS_MAPPING & set(step.name):
            wanted |= dict([_MAPPING])
        if isinstance(step.data_type, types.TimestampNTZType):
            wanted |= dict([_LOCAL_TIME])
    return {k: v for k, v in wanted.items() if snapshot.properties.get(k) != v}


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


def _entries(scala_map: Any) -> Iterator[tuple[str, Any]]:
    entries = scala_map.iterator()
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), entry._2()
