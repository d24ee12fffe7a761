"""The load of a PostgreSQL, by its own views, and how much longer it keeps its log for us.

Other sessions and replicas are shown in full to roles with pg_read_all_stats only; without it the
hidden part is unknown, not zero.
"""

from __future__ import annotations

from typing import Any

from tideline_capture.core.facts import SourceLoad

_LOAD = """
SELECT
  CASE
    WHEN pg_is_in_recovery() THEN
      extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8
    WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
      (SELECT max(extract(epoch FROM r.replay_lag))::float8 FROM pg_stat_replication r
       WHERE r.pid NOT IN (SELECT active_pid FROM pg_replication_slots
                           WHERE slot_type = 'logical' AND active_pid IS NOT NULL))
  END,
  CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN
    (SELECT count(*) FROM pg_stat_activity a
     WHERE a.backend_type = 'client backend' AND a.state = 'active'
       AND a.application_name NOT LIKE 'tideline%%')
  END,
  s.kept, s.wal_status, s.safe_wal_size,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM (SELECT) one LEFT JOIN LATERAL (
  SELECT pg_wal_lsn_diff(
           CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_lsn() END, restart_lsn)::int8 AS kept,
         wal_status, safe_wal_size
  FROM pg_replication_slots WHERE slot_name = %s) s ON true
"""
_WARN_BELOW = 0.25
"""The part of the log that the slot may keep."""


def read_load(cursor: Any, slot: str) -> SourceLoad:
    """Return the load now, and how much of its log the server keeps for ``slot``."""
    cursor.execute(_LOAD, (slot,))
    lag, running, kept, status, safe, clock_us = cursor.fetchone()
    return SourceLoad(
        replica_lag_s=lag,
        running_queries=running,
        log_backlog_bytes=kept,
        log_warning=_warning(slot, kept, status, safe),
        clock_us=int(clock_us),
    )


def _warning(slot: str, kept: int | None, status: str | None, safe: int | None) -> str | None:
    """Return a warning when the log may soon be removed. ``safe`` is None without
    max_slot_wal_keep_size: then the disk is the limit."""
    if status == "lost":
        return f"the server removed WAL that slot {slot!r} still needed"
    near = safe is not None and kept is not None and safe < (safe + kept) * _WARN_BELOW
    if status == "unreserved" or near:
        left = max(safe or 0, 0) >> 20
        return (
            f"slot {slot!r} keeps {(kept or 0) >> 20} MiB of WAL; after {left} MiB more the server"
            " removes it (max_slot_wal_keep_size)"
        )
    return None
