"""Limits how hard dumps work the source: the size of chunks, and when none is read.

A chunk is to take a certain time, so its rows follow from how long the table's last ones took: at
most twice or half as many from one chunk to the next, and never more than requested. Above a limit
on the source's load no chunk is begun until a later look finds it below. A load that is not known,
or is outdated, throttles nothing: it would never be known when to resume.
"""

from __future__ import annotations

from tideline_capture.core.facts import SourceLoad
from tideline_capture.core.limits import CoreLimits

ROWS_MIN = 100
_STEP = 2.0
LOAD_VALID_S = 60.0


class Governor:
    """Sizes and throttles chunks; times are monotonic seconds."""

    def __init__(self, limits: CoreLimits) -> None:
        self._limits = limits
        self._rows: dict[str, int] = {}
        self._load: SourceLoad | None = None
        self._load_at = 0.0

    def saw_load(self, load: SourceLoad, *, now: float) -> None:
        self._load, self._load_at = load, now

    def saw_chunk(self, table: str, rows: int, *, took_s: float, full: bool = True) -> None:
        """Note a chunk of ``rows`` of ``table`` that was read in ``took_s``.

        One that is not ``full``, a repair of few keys or a table's end, shows when rows are too
        many, but not when they are enough.
        """
        target_s = self._limits.chunk_target_ms / 1000
        if not (rows and target_s and took_s):
            return
        factor = target_s / took_s
        if factor >= 1 and not full:
            return
        wanted = rows * min(_STEP, max(1 / _STEP, factor))
        self._rows[table] = max(ROWS_MIN, round(wanted))

    def rows_max(self, table: str, asked: int) -> int:
        """Return the rows of the table's next chunk, ``asked`` at most."""
        return min(asked, self._rows.get(table, asked))

    def throttled_by(self, *, now: float) -> str | None:
        """Return in words what throttles dumps; None when nothing does."""
        load, limits = self._load, self._limits
        if load is None:
            limited = (
                limits.replica_lag_max_s is not None
                or limits.running_queries_max is not None
                or limits.log_backlog_max_bytes is not None
            )
            return "the source's load has not been looked at yet" if limited else None
        if now - self._load_at > LOAD_VALID_S:
            return None
        reasons = [
            f"{what} {value:g}{unit}, limit {limit:g}{unit}"
            for what, value, limit, unit in (
                ("replica lag", load.replica_lag_s, limits.replica_lag_max_s, " s"),
                ("running queries", load.running_queries, limits.running_queries_max, ""),
                (
                    "log backlog",
                    _mib(load.log_backlog_bytes),
                    _mib(limits.log_backlog_max_bytes),
                    " MiB",
                ),
            )
            if value is not None and limit is not None and value > limit
        ]
        return "; ".join(reasons) or None


def _mib(count: int | None) -> float | None:
    return None if count is None else count / (1 << 20)
