"""Snapshots that tables without a key are copied from, kept open from chunk to chunk.

A dump's chunks are read by whichever dumper is free, so the snapshots belong to the source and not
to one dumper. A snapshot that is still wanted is kept, however long its dump waits for its next
chunk. One that is no longer wanted (its dump is paused, or over) is ended: it keeps the server from
cleaning up, and the dump restarts with another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

IDLE_S = 300.0
"""The time for which a snapshot is kept after the last report that it is wanted."""


class Closable(Protocol):
    def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


class Streams(Generic[S]):
    """Open snapshots by table, each with the token of the chunk that took it; thread-safe."""

    def __init__(
        self, idle_s: float = IDLE_S, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, S, threading.Timer]] = {}
        self._wanted_at: dict[str, float] = {}

    def put(self, table: str, token: str, stream: S) -> None:
        """Keep ``stream``; the one that was kept for the table is ended."""
        self.end(table)
        with self._lock:
            self._open[table] = token, stream, self._timer(table, token, self._idle_s)

    def take(self, table: str, token: str) -> S | None:
        """Return the stream to read on from, or None when it is gone. `put` gives it back."""
        with self._lock:
            found = self._open.get(table)
            if found is None or found[0] != token:
                return None
            del self._open[table]
        found[2].cancel()
        return found[1]

    def end(self, table: str, token: str | None = None) -> None:
        """End the table's stream (if it is the one of ``token``)."""
        with self._lock:
            found = self._open.get(table)
            if found is None or token not in (None, found[0]):
                return
            del self._open[table]
        found[2].cancel()
        found[1].close()

    def keep(self, tokens: Collection[str]) -> None:
        """Keep the streams of ``tokens``: they are wanted; call again before they have been
        idle."""
        now = self._clock()
        with self._lock:
            kept = {one: at for one, at in self._wanted_at.items() if now - at < self._idle_s}
            self._wanted_at = {**kept, **dict.fromkeys(tokens, now)}

    def close(self) -> None:
        """End all of them."""
        for table in list(self._open):
            self.end(table)

    def _timer(self, table: str, token: str, idle_s: float) -> threading.Timer:
        timer = threading.Timer(idle_s, self._idle, (table, token))
        timer.daemon = True
        timer.start()
        return timer

    def _idle(self, table: str, token: str) -> None:
        with self._lock:
            found = self._open.get(table)
            if found is None or found[0] != token:
                return
            left_s = self._wanted_at.get(token, 0.0) + self._idle_s - self._clock()
            if token in self._wanted_at and left_s > 0:
                self._open[table] = token, found[1], self._timer(table, token, left_s)
                return
        self.end(table, token)
