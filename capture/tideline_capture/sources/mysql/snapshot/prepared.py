"""XA transactions that were committed in the log and cannot be seen yet.

Other transactions become visible in the log's order, before a watermark behind them can be written.
The commit of a prepared one is logged first and carried out then, on MariaDB, and on an old MySQL
when another session commits it than prepared it; until then the server still lists it as prepared.
So the transactions listed after a low watermark was written are waited for before the chunk is
read. One that is listed for long is not being committed, but abandoned by its client.

MySQL shows the list to users with XA_RECOVER_ADMIN only. It is needed where a read was seen to miss
such a commit (8.0.15) and until the server's own order of these commits changed (8.0.30); on 9.7
none was ever missed.
"""

from __future__ import annotations

import time
from typing import Any

import pymysql

from tideline_capture.sources.mysql.connect import flavour, version_of

ER_XAER_RMERR = 1401
"""MySQL's answer to XA RECOVER of a user without XA_RECOVER_ADMIN."""
ORDERED_SINCE = (8, 0, 30)
_COMMIT_S = 15.0
"""The log has a commit for some milliseconds before it is carried out; for 10 s by default where
semi-synchronous replication waits for a replica in vain."""
_LEFT_BEHIND_S = 0.2
"""The same, for those that have been waited for in vain: every chunk meets them."""
_PAUSE_S = 0.002
_LOOK_S = 0.05
"""The most that one look counts: a server that stood still for longer has carried out nothing."""
_COMMITS = "SHOW GLOBAL STATUS LIKE 'Com\\_xa\\_commit'"


class PreparedTransactions:
    """Waits for those that are being committed, on the server behind ``connection``."""

    def __init__(self, connection: Any) -> None:
        self._must_see = must_be_seen(connection)
        self._left_behind: set[tuple[Any, ...]] = set()

    def settle(self, cursor: Any) -> bool:
        """Return True when none is left that was being committed when this was called; False when
        some may be and cannot be seen."""
        waiting = listed(cursor)
        if waiting is None:
            return not self._must_see or _none_committed(cursor)
        waited, checked_at = 0.0, time.monotonic()
        while waiting and waited < self._worth(waiting):
            time.sleep(_PAUSE_S)
            waiting &= listed(cursor) or set()
            now = time.monotonic()
            waited += min(now - checked_at, _LOOK_S)
            checked_at = now
        self._left_behind = waiting
        return True

    def _worth(self, waiting: set[tuple[Any, ...]]) -> float:
        """Return for how many seconds they are waited for."""
        return _LEFT_BEHIND_S if waiting <= self._left_behind else _COMMIT_S


def must_be_seen(connection: Any) -> bool:
    """Return whether chunks need the list, on a server where XA transactions are used."""
    if flavour(connection) == "mariadb":
        return True
    return version_of(connection.get_server_info()) < ORDERED_SINCE


def listed(cursor: Any) -> set[tuple[Any, ...]] | None:
    """Return the prepared transactions; None when the user may not see them."""
    try:
        cursor.execute("XA RECOVER")
    except pymysql.MySQLError as error:
        if error.args[0] != ER_XAER_RMERR:
            raise
        return None
    return set(cursor.fetchall())


def _none_committed(cursor: Any) -> bool:
    """Return whether no XA transaction has been committed since the server's start."""
    cursor.execute(_COMMITS)
    return cursor.fetchone()[1] in (0, "0", b"0")
