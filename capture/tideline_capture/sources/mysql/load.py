"""The load of a MySQL or MariaDB, and how much longer it keeps its log for us.

A server does not know how far its replicas are behind; where the source is a replica itself, its
own lag counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pymysql
from pymysql.cursors import DictCursor

from tideline.contract.position import MysqlPosition
from tideline_capture.core.facts import SourceLoad
from tideline_capture.sources.mysql.catalog.tables import Flavour
from tideline_capture.sources.mysql.checks.probes import rows_if_allowed

_RUNNING = "SHOW GLOBAL STATUS LIKE 'Threads\\_running'"
_EXPIRES = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_expire_logs_seconds', 'expire_logs_days')
"""
_CLOCK = "SELECT UNIX_TIMESTAMP(SYSDATE(6))"
_OURS = 2
"""Threads that are always at work for us: this one, and the one that sends the log."""
_WARN_ABOVE = 0.75
"""The part of the time that the server keeps its log."""
_LAGS = ("Seconds_Behind_Source", "Seconds_Behind_Master")


def read_load(
    connection: Any,
    *,
    flavour: Flavour,
    position: MysqlPosition,
    source_time_us: int | None,
) -> SourceLoad:
    """Return the load now. The log is needed from ``position`` on, whose transactions are of about
    ``source_time_us`` (µs since 1970, the source's clock; None: not known)."""
    with connection.cursor() as cursor:
        cursor.execute(_RUNNING)
        running = int(cursor.fetchone()[1]) - _OURS
        files = rows_if_allowed(cursor, "SHOW BINARY LOGS")
        cursor.execute(_EXPIRES)
        retention_s = _retention_s({name.lower(): value for name, value in cursor.fetchall()})
        cursor.execute(_CLOCK)
        now_s = float(cursor.fetchone()[0])
    age_s = None if source_time_us is None else now_s - source_time_us / 1e6
    return SourceLoad(
        replica_lag_s=_lag(connection, flavour),
        running_queries=max(0, running),
        log_backlog_bytes=_backlog(files or (), position),
        log_warning=_warning(age_s, retention_s),
        clock_us=int(now_s * 1e6),
    )


def _lag(connection: Any, flavour: Flavour) -> float | None:
    """Return the lag of a replica in seconds; None for a server that is no replica, or does not
    show it, or whose replication stands."""
    statement = "SHOW ALL SLAVES STATUS" if flavour == "mariadb" else "SHOW REPLICA STATUS"
    with connection.cursor(DictCursor) as cursor:
        try:
            cursor.execute(statement)
        except pymysql.MySQLError:
            return None  # Not allowed, or a version that calls it otherwise.
        lags = [row.get(name) for row in cursor.fetchall() for name in _LAGS]
    return max((float(lag) for lag in lags if lag is not None), default=None)


def _backlog(files: Any, position: MysqlPosition) -> int | None:
    """Return the bytes of the log from ``position`` on; None when its file is not known."""
    sizes = {str(row[0]): int(row[1]) for row in files}
    if position.file not in sizes:
        return None
    later = sum(size for name, size in sizes.items() if name > position.file)
    return max(0, sizes[position.file] - position.offset) + later


def _retention_s(variables: Mapping[str, str]) -> float | None:
    """Return for how many seconds the server keeps its log; None: until it is removed by hand."""
    seconds = float(variables.get("binlog_expire_logs_seconds") or 0)
    return seconds or float(variables.get("expire_logs_days") or 0) * 86_400 or None


def _warning(age_s: float | None, retention_s: float | None) -> str | None:
    if age_s is None or retention_s is None or age_s < retention_s * _WARN_ABOVE:
        return None
    return (
        f"the log is needed from {age_s / 3600:.1f} h ago on, and the server removes what is older"
        f" than {retention_s / 3600:.1f} h (binlog_expire_logs_seconds)"
    )
