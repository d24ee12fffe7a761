"""Finds transactions of the log that a read may not have seen.

On PostgreSQL a transaction's commit can be in the log before a low watermark and yet be invisible
to a read begun after that watermark: the commit record is written before the transaction leaves the
list of running ones. A chunk with such a hole would bring an older value after a newer one. So the
ids of the log's transactions are kept until a snapshot has shown them, and a chunk that missed one
of those before its low watermark is read again.

The log's ids have 32 bits, a snapshot's 64: they are compared around the snapshot's ``xmax``.
"""

from __future__ import annotations

import numpy as np

from tideline_capture.core.events import Int64Array
from tideline_capture.core.facts import Snapshot

_EPOCH = 1 << 32
_HALF = 1 << 31
_NONE: Int64Array = np.empty(0, np.int64)


def invisible(transactions: Int64Array, snapshot: Snapshot) -> Int64Array:
    """Return those of ``transactions`` (32-bit ids) that ``snapshot`` does not show."""
    if not len(transactions):
        return transactions
    wide = (snapshot.xmax & ~(_EPOCH - 1)) + transactions
    wide = np.where(wide > snapshot.xmax + _HALF, wide - _EPOCH, wide)
    wide = np.where(wide < snapshot.xmax - _HALF, wide + _EPOCH, wide)
    hidden = wide >= snapshot.xmax
    if snapshot.running:
        hidden |= np.isin(wide, np.array(snapshot.running, np.int64))
    return transactions[hidden]


class UnseenTransactions:
    """The log's transactions that no snapshot has shown yet.

    ``complete`` is False when some are unknown: after a start, and above ``limit``. Only a fence
    makes up for those; `fenced` records that one has been passed. It covers what ended before its
    low watermark, so that what was dropped since then is still unknown.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids = _NONE
        self._shown: Snapshot | None = None
        self._dropped_since_watermark = False
        self.complete = False

    def __len__(self) -> int:
        return len(self._ids)

    def committed(self, transactions: Int64Array) -> None:
        """Add transactions that ended in the log, in order."""
        if self._shown is not None:
            transactions = invisible(transactions, self._shown)
        if not len(transactions):
            return
        self._ids = np.concatenate((self._ids, transactions)) if len(self._ids) else transactions
        if len(self._ids) > self._limit:
            self._ids = _NONE
            self.complete = False
            self._dropped_since_watermark = True

    def shown(self, snapshot: Snapshot) -> None:
        """Forget what ``snapshot`` shows. It must be older than any read still to be judged."""
        self._shown = snapshot
        self._ids = invisible(self._ids, snapshot)

    def fenced(self) -> None:
        """Note that every transaction that ended before the last low watermark has been seen."""
        if not self._dropped_since_watermark:
            self.complete = True

    def at_low_watermark(self) -> Int64Array:
        """Return what a chunk must see whose low watermark is here."""
        self._dropped_since_watermark = False
        return self._ids


class VisibleSnapshots:
    """Snapshots, kept until the chunks that were in flight then are judged by them."""

    def __init__(self, unseen: UnseenTransactions) -> None:
        self._unseen = unseen
        self._waiting: list[tuple[Snapshot, frozenset[str]]] = []

    def show(self, snapshot: Snapshot, awaited: frozenset[str]) -> None:
        """Forget what ``snapshot`` shows, once the low watermarks of ``awaited`` have come.

        These chunks may have been read before it was taken.
        """
        if len(self._waiting) > 1:
            self._waiting.pop()  # The oldest says soonest what may be forgotten, the newest most.
        self._waiting.append((snapshot, awaited))

    def apply(self, awaited: frozenset[str]) -> None:
        """Forget what may be forgotten before the low watermarks of the chunks ``awaited`` come."""
        while self._waiting and not self._waiting[0][1] & awaited:
            self._unseen.shown(self._waiting.pop(0)[0])
