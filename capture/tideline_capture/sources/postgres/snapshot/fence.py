"""The fence: a wait until every transaction that is older than now has ended.

After a low watermark, a fresh transaction id X is taken; once the oldest running transaction is not
older than X, a snapshot shows every transaction whose commit was in the log before that watermark.
(Waiting for the ones in a snapshot taken then is not enough.) It costs as long as the longest
transaction runs, so it is used only where the ids in the log do not decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_NEXT = "SELECT pg_catalog.pg_current_xact_id()::text"
_OLDEST = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text"
_BLOCKER = """
SELECT 'a transaction of process ' || pid || ', begun ' || xact_start::text
FROM pg_catalog.pg_stat_activity WHERE backend_xid IS NOT NULL
  AND pid <> pg_catalog.pg_backend_pid() ORDER BY xact_start LIMIT 1
"""
_PREPARED = """
SELECT 'the prepared transaction of ' || prepared::text FROM pg_catalog.pg_prepared_xacts
ORDER BY prepared LIMIT 1
"""
_PAUSE_S = (0.002, 0.2)
_REPORT_S = 1.0


class Fence:
    """A fence on ``connection``, an SQL connection in autocommit."""

    def __init__(self, connection: Any, *, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    def pass_(self, on_waiting: Callable[[str | None], None]) -> str | None:
        """Wait; return None once passed, else what stood in the way for ``timeout_s``.

        ``on_waiting`` is called every second of the wait, and ends it by raising.
        """
        with self._connection.cursor() as cursor:
            border = self._number(cursor, _NEXT)
            begun = reported = time.monotonic()
            pause = _PAUSE_S[0]
            while self._number(cursor, _OLDEST) < border:
                now = time.monotonic()
                if now - begun >= self._timeout_s:
                    return f"an older transaction did not end: {blocker(cursor)}"
                if now - reported > _REPORT_S:
                    reported = now
                    on_waiting(f"waiting for {blocker(cursor)} to end")
                time.sleep(pause)
                pause = min(pause * 1.5, _PAUSE_S[1])
            if reported > begun:
                on_waiting(None)
        return None

    def _number(self, cursor: Any, query: str) -> int:
        cursor.execute(query)
        return int(cursor.fetchone()[0])


def blocker(cursor: Any) -> str:
    """Return the oldest transaction that runs, in words."""
    for query in (_BLOCKER, _PREPARED):
        cursor.execute(query)
        row = cursor.fetchone()
        if row is not None:
            return str(row[0])
    return "a transaction that this role may not see"
