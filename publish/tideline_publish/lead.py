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
    """A worker's hold on a publisher; ``entry`` is the newest entry that is known. ``reason``: why
    nothing is published, in what is appended until it is another one. ``invalid`` returns how many
    rows were put aside before they came to the output.
    ``state_manifest`` is of the next entry."""

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
        self._appended_at = self._waited_from = 0.0
        self.entry: PublisherEntry | None = None
        self.reason = ""
        self.invalid: Callable[[], int] = lambda: 0
        self.state_manifest: int | None = None

    @property
    def silent_s(self) -> float:
        """The seconds since this worker appended."""
        return self._system.monotonic() - self._appended_at

    def acquire(self, begin: Callable[[], ChainPosition | None]) -> ChainPosition | None:
        """Become active; return the logged position, None when stopped before that.

        ``begin`` is called for a publisher that never ran: it returns where it begins, None while
        there is no chain.
        """
        self._waited_from = self._system.monotonic()
        while not self._stopping.is_set():
            try:
                position = self._free(begin)
                if position is not None:
                    self.append(position)
                    return position
            except Fenced:
                log.info("another worker was faster", publisher=self._positions.publisher)
            except Unavailable as error:
                log.warning("the store is unavailable; the wait starts again", reason=str(error))
                self._waited_from = self._system.monotonic()
            self._stopping.wait(self._pause_s)
        return None

    def _free(self, begin: Callable[[], ChainPosition | None]) -> ChainPosition | None:
        """Return the position to go on from, if no other worker is at it."""
        newest = self._positions.newest()
        if newest is None:
            return begin()
        if self.state_manifest is not None:
            self.state_manifest = newest.state_manifest or 0
        free = newest.released or self._abandoned(newest)
        if self.entry is None or newest.number > self.entry.number:
            self._passive(newest)
        return newest.position if free and not newest.paused else None

    def fenced_by_operator(self) -> bool:
        """Return whether a command has paused or moved the publisher since this worker appended:
        then it waits again."""
        newest = self._positions.newest()
        return newest is not None and newest.by_operator

    def append(
        self,
        position: ChainPosition,
        *,
        events: int = 0,
        released: bool = False,
        dead_letters: int | None = None,
    ) -> None:
        """Append ``position`` to the log, with ``events`` more that are published, and the number
        of ``dead_letters`` of the output (None: all are as they were); raises like it, Fenced
        where another worker has it."""
        before = self.entry
        number, known = (1, 0) if before is None else (before.number + 1, before.events)
        letters = 0 if before is None else before.dead_letters
        if dead_letters is not None:
            letters = dead_letters + self.invalid()
        entry = PublisherEntry(
            self._positions.publisher,
            number,
            self._writer,
            position,
            self._system.wall_us(),
            released,
            known + events,
            dead_letters=letters,
            reason=self.reason,
            state_manifest=self.state_manifest,
        )
        self._positions.append(entry)
        self.entry = entry
        self._appended_at = self._system.monotonic()

    def _abandoned(self, newest: PublisherEntry) -> bool:
        """Return whether the entry is the one that was there ``takeover_after_s`` ago."""
        same = self.entry is not None and self.entry.number == newest.number
        return same and self._system.monotonic() - self._waited_from >= self._takeover_after_s

    def _passive(self, newest: PublisherEntry) -> None:
        if newest.paused and not (self.entry is not None and self.entry.paused):
            log.info(
                f"the publisher is paused; `tideline publish {self._positions.publisher} --resume`"
                " lets it go on",
                publisher=self._positions.publisher,
            )
        elif self.entry is None and not newest.released:
            log.info(
                "another worker publishes, or has just stopped; this one waits",
                publisher=self._positions.publisher,
                writer=newest.writer,
            )
        self.entry = newest
        self._waited_from = self._system.monotonic()
