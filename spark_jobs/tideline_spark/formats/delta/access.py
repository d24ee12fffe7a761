"""A Delta table through one Spark session: its log, and the settings that its commits carry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.plan import CommitMetadata
from tideline.warehouse.delta.log import commit_file, parse_commit
from tideline_spark.formats.session_settings import setting
from tideline_spark.hadoop_files import find_status, read_file
from tideline_spark.schemas import quote

METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MAPPING = ("delta.columnMapping.mode", "name")
_TXN_APP = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"


class DeltaAccess:
    """One table by its path, through its own session; made and used in one thread."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session = session
        self.path = path
        jvm: Any = session._jvm
        self.jvm = jvm
        # Delta's own calls look for a session in the thread; statements set it themselves.
        active = jvm.org.apache.spark.sql.classic.SparkSession
        active.setActiveSession(session._jsparkSession)

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return f"delta.{quote(self.path)}"

    def look_up(self) -> Any:
        """Return Delta's own pair: the table's log, and the snapshot of its newest version."""
        log = self.jvm.org.apache.spark.sql.delta.DeltaLog
        return log.forTableWithSnapshot(self.session._jsparkSession, self.path)

    def begin(self) -> Any:
        """Start Delta's own transaction on the newest version."""
        return self.look_up()._1().startTransaction()

    def sequence(self, items: Any = None) -> Any:
        """Return Java's list ``items``, by default an empty one, as Scala's sequence."""
        given = self.jvm.java.util.ArrayList() if items is None else items
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(given)

    def commits(self, version: int) -> Iterator[TableCommit]:
        """See `Target.commits`."""
        files, _ = self.folder()
        for number in range(version, max(-1, version - COMMITS_MAX), -1):
            file = self.jvm.org.apache.hadoop.fs.Path(self.path, commit_file(number))
            if (status := find_status(files, file)) is None:
                return
            at_us = 1_000 * int(status.getModificationTime())
            yield parse_commit(number, read_file(files, status), at_us)

    def folder(self) -> tuple[Any, Any]:
        """Return Hadoop's file system for the table, and the table's path in it."""
        path = self.jvm.org.apache.hadoop.fs.Path(self.path)
        configuration = self.session._jsparkSession.sessionState().newHadoopConf()
        return path.getFileSystem(configuration), path

    @contextmanager
    def with_metadata(
        self, commit_metadata: CommitMetadata, app: str | None = None, number: int = 0
    ) -> Iterator[None]:
        """Set the transaction id and metadata, which are session settings, for one statement."""
        settings = {METADATA: commit_metadata.text()}
        if app is not None:
            settings |= {_TXN_APP: app, _TXN_VERSION: str(number)}
        with setting(self.session, settings):
            yield
