"""From when on what a snapshot shows may be forgotten."""

from __future__ import annotations

from tideline_capture.core.events import Snapshot
from tideline_capture.core.orders import Orders, Reading
from tideline_capture.core.visibility import UnseenTransactions


class ShownSnapshots:
    """Snapshots that were taken, until the chunks that were under way then are judged by what they
    may have missed."""

    def __init__(self, unseen: UnseenTransactions, orders: Orders) -> None:
        self._unseen = unseen
        self._orders = orders
        self._waiting: list[tuple[Snapshot, frozenset[str]]] = []

    def show(self, snapshot: Snapshot, reading: Reading | None = None) -> None:
        """What ``snapshot`` (the one that ``reading`` was read in) shows may be forgotten; but not
        before the low marks of others that are under way have come: their chunks may have been read
        before it was taken."""
        if len(self._waiting) > 1:
            self._waiting.pop()  # The oldest says soonest what may be forgotten, the newest most.
        self._waiting.append((snapshot, self._awaited - {reading.order.token if reading else ""}))
        self.apply()

    def apply(self) -> None:
        """Forget what may be forgotten by now."""
        while self._waiting and not self._waiting[0][1] & self._awaited:
            self._unseen.shown(self._waiting.pop(0)[0])

    @property
    def _awaited(self) -> frozenset[str]:
        """The chunks under way whose low marks have not come."""
        return frozenset(r.order.token for r in self._orders.readings if r.window is None)
