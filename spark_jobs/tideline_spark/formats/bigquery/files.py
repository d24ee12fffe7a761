"""Maintains a BigQuery table, whose files are BigQuery's own matter: its log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tideline.contract.external_commits import COMMITS_MAX
from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.warehouse.bigquery.client import asking
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess
from tideline_spark.formats.file_figures import check_vacuum


class BigQueryFiles:
    """See `TargetFiles`."""

    def __init__(self, access: BigQueryAccess) -> None:
        self._access = access

    def measure(self, thresholds: Thresholds) -> Files:
        """See `TargetFiles`: the table counts as one file."""
        access = self._access
        log = access.read()
        if log.table is None:
            return Files()
        with asking(f"to count the rows of {access.name}"):
            sql = f"SELECT COUNT(*) FROM {access.name.sql}"  # noqa: S608  names are quoted
            (row,) = access.jobs.query(sql)
        return Files(files=1, bytes=int(log.table.num_bytes or 0), rows=row[0])

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        """See `TargetFiles`: BigQuery rewrites them by itself."""

    def vacuum(self, hours: float) -> int:
        """See `TargetFiles`: removes commits from the log that nothing looks at any more, but its
        first; return 0. Tables of staged rows expire by themselves."""
        check_vacuum(hours)
        access = self._access
        log = access.read()
        if not log.exists:
            return 0
        until = DIALECT.literal((datetime.now(UTC) - timedelta(hours=hours)).isoformat())
        oldest = log.version - COMMITS_MAX
        sql = (
            f"DELETE FROM {access.name.log.sql} WHERE NOT newest AND version >= 0"  # noqa: S608  literals of ours
            f" AND version < {oldest} AND committed_at < TIMESTAMP {until}"
        )
        with asking(f"to shorten the log of {access.name}"):
            access.jobs.query(sql)
        return 0
