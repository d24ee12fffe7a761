"""XA transactions of MariaDB that were committed in the log and cannot be seen yet.

Other transactions become visible in the log's order, before a mark behind them can be written. The
commit of a prepared one is logged first and carried out then; meanwhile the server still lists it
as prepared. So what is listed after a low mark was written is waited for before the chunk is read.
One that is listed for long is not being committed, but left behind by somebody. (On MySQL 8.0 no
read was ever seen to miss one.)
"""

from __future__ import annotations

import time
from typing import Any

_COMMIT_S = 2.0
"""The log has a commit for some milliseconds before it is carried out."""
_LEFT_BEHIND_S = 0.2
"""The same, for those that have been waited for in vain: every chunk meets them."""
_PAUSE_S = 0.002


class PreparedTransactions:
    """Waits for those that are being committed."""

    def __init__(self) -> None:
        self._left_behind: set[tuple[Any, ...]] = set()

    def settle(self, cursor: Any) -> None:
        """Return when none is left that was being committed when this was called."""
        waiting = _listed(cursor)
        known = waiting <= self._left_behind
        end = time.monotonic() + (_LEFT_BEHIND_S if known else _COMMIT_S)
        while waiting and time.monotonic() < end:
            time.sleep(_PAUSE_S)
            waiting &= _listed(cursor)
        self._left_behind = waiting


def _listed(cursor: Any) -> set[tuple[Any, ...]]:
    cursor.execute("XA RECOVER")
    return set(cursor.fetchall())
