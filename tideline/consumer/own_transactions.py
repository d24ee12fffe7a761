"""The transactions that an application wrote itself, by which it knows its own changes in events.

On PostgreSQL an event's ``tx`` is the lower half of the id that ``pg_current_xact_id()`` returns::

    own = OwnTransactions()
    note_transactions(Session, own)      # a session, or a factory of sessions, of SQLAlchemy
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

_ASSIGNED = "SELECT pg_current_xact_id_if_assigned()::text"
_LOWER_HALF = 2**32


class OwnTransactions:
    """Ids of the last ``size_max`` transactions, each for ``age_max_s`` at most; what is forgotten
    counts as another's. ``clock`` returns seconds that only grow. Safe to use from several
    threads."""

    def __init__(
        self,
        size_max: int = 100_000,
        age_max_s: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size_max, self._age_max_s, self._clock = size_max, age_max_s, clock
        self._known: OrderedDict[int, tuple[float, set[int]]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, tx: int) -> None:
        """Note a transaction, before it commits: its events may come at once."""
        with self._lock:
            self._known[tx % _LOWER_HALF] = (self._clock() + self._age_max_s, set())
            self._forget()

    def skips(self, tx: int, seq: int) -> bool:
        """Return whether the change ``seq`` is of a transaction of ours; once for each: of an event
        that comes again it is not known what happened in between."""
        with self._lock:
            self._forget()
            _, changes = self._known.get(tx, (0.0, None))
            if changes is None or seq in changes:
                return False
            changes.add(seq)
            return True

    def _forget(self) -> None:
        now = self._clock()
        while self._known:
            tx, (ends, _) = next(iter(self._known.items()))
            if ends > now and len(self._known) <= self._size_max:
                return
            del self._known[tx]


def note_transactions(session: Any, own: OwnTransactions) -> None:
    """Have ``own`` note each transaction that ``session``, a `Session` or `sessionmaker` of
    SQLAlchemy on PostgreSQL, commits, if it wrote anything: one query more before a commit."""
    # heavy: only applications that use it have it
    from sqlalchemy import event, text

    def before_commit(committing: Any) -> None:
        committing.flush()  # Only then the transaction has an id.
        found = committing.execute(text(_ASSIGNED)).scalar()
        if found is not None:
            own.add(int(found))

    event.listen(session, "before_commit", before_commit)
