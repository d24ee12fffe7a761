"""Decides which worker of a publisher is active, by the log of its positions alone.

The same technique as for the workers of a chain: the active one appends at least every
``heartbeat_s``. Another one looks for new entries, and appends the next when there was none for
``takeover_after_s``: the old worker's next append finds its number taken, and it stops.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.publishing import ChainPosition, PublisherEntry
from tideline.store.publisher_log import PublisherLog
from tideline.system import Event, System

log = structlog.get_logger("tideline.publisher")


class PublisherLead:
    """A worker's hold on a publisher; ``entry`` is the newest entry that is known."""

    def __init__(
        self,
        positions: PublisherLog,
        writer: str,
        takeover_after_s: float,
        stopping: Event,
        system: System,
    ) -> None:
        self._positions = positions
        self._writer = writer
        self._takeover_after_s = takeover_after_s
        self._stopping = stopping
        self._system = system
        self._pause_s = min(1.0, takeover_after_s / 5)
        self._appended_at = 0.0
        self.entry: PublisherEntry | None = None

    @property
    def silent_s(self) -> float:
        """The seconds since this worker appended."""
        return self._system.monotonic() - self._appended_at

    def acquire(self, begin: Callable[[], ChainPosition | None]) -> ChainPosition | None:
        """Become active; return the logged position, None when stopped before that.

        ``begin`` is called for a publisher that never ran: it returns where it begins, None while
        there is no chain.
        """
        waited_from = self._system.monotonic()
        while not self._stopping.is_set():
            try:
                newest = self._positions.newest()
                if newest is None:
                    position = begin()
                elif newest.released or self._abandoned(newest, waited_from):
                    position = newest.position
                else:
                    position = None
                if newest is not None and (self.entry is None or newest.number > self.entry.number):
                    self._passive(newest)
                    waited_from = self._system.monotonic()
                if position is not None:
                    self.entry = newest
                    self.append(position)
                    return position
            except Fenced:
                log.info("another worker was faster", publisher=self._positions.publisher)
            except Unavailable as error:
                log.warning("the store is unavailable; the wait starts again", reason=str(error))
                waited_from = self._system.monotonic()
            self._stopping.wait(self._pause_s)
        return None

    def append(self, position: ChainPosition, *, released: bool = False) -> None:
        """Append ``position`` to the log; raises like it, Fenced where another worker has it."""
        number = 1 if self.entry is None else self.entry.number + 1
        entry = PublisherEntry(
            self._positions.publisher,
            number,
            self._writer,
            position,
            self._system.wall_us(),
            released,
        )
        self._positions.append(entry)
        self.entry = entry
        self._appended_at = self._system.monotonic()

    def _abandoned(self, newest: PublisherEntry, waited_from: float) -> bool:
        """Return whether the entry is the one that was there ``takeover_after_s`` ago."""
        same = self.entry is not None and self.entry.number == newest.number
        return same and self._system.monotonic() - waited_from >= self._takeover_after_s

    def _passive(self, newest: PublisherEntry) -> None:
        if self.entry is None and not newest.released:
            log.info(
                "another worker publishes, or has just stopped; this one waits",
                publisher=self._positions.publisher,
                writer=newest.writer,
            )
        self.entry = newest
