"""Whether this process is alive, and ready: what ``/healthz`` and ``/readyz`` of a worker answer.

Its loops say when they come round, and the judgement is made when somebody asks, by another thread:
a loop that hangs cannot hide it. ``docs/METRICS.md`` says what the answers mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tideline.settings import Settings


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """An answer, with its reason for people; no secret and no row's value is in it."""

    ok: bool
    reason: str


class Loop:
    """A loop of this process, watched from its first turn on."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self._clock = clock
        self._turned_at: float | None = None

    def turn(self) -> None:
        """Say that the loop came round; called by its own thread alone."""
        self._turned_at = self._clock()

    @property
    def silent_s(self) -> float | None:
        """How long ago it came round; None before the first time."""
        return None if self._turned_at is None else self._clock() - self._turned_at


class Health:
    """What the worker's threads tell of themselves.

    ``limit_s``: a loop that has not come round for longer hangs. ``patience_s``: an active worker
    that has not read, or is not surely the chain's owner, for longer is not ready; nor is a passive
    one whose looks at the chain were not answered for as long.
    """

    def __init__(
        self,
        *,
        limit_s: float = 150.0,
        patience_s: float = 15.0,
        stopping: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self.main = Loop("main loop", clock)
        self.uploader = Loop("uploader's loop", clock)
        self._owns: Callable[[], bool] = lambda: False
        self._patience_s = patience_s
        self._stopping = stopping
        self._chain_seen = Loop("chain", clock)
        self._reading = False
        self._active = False
        self.main.turn()

    def saw_chain(self) -> None:
        """A passive worker's look at the chain was answered."""
        self._chain_seen.turn()

    def active(self, owns: Callable[[], bool]) -> None:
        """From here on this worker extends the chain; ``owns``: whether it is surely its own."""
        self._owns = owns
        self._active = True

    def reading(self, reads: bool) -> None:
        """Whether a session reads the source's log now."""
        self._reading = reads

    def alive(self) -> HealthVerdict:
        """Whether every loop came round in the last ``limit_s``."""
        ages = [(one.name, one.silent_s) for one in (self.main, self.uploader)]
        seen = [(name, age) for name, age in ages if age is not None]
        for name, age in seen:
            if age > self.limit_s:
                return HealthVerdict(
                    False,
                    f"the {name} has not come round for {age:.1f} s; {self.limit_s:g} s are"
                    " allowed",
                )
        words = ", ".join(f"the {name} came round {age:.1f} s ago" for name, age in seen)
        return HealthVerdict(True, f"{words}; {self.limit_s:g} s are allowed")

    def ready(self) -> HealthVerdict:
        """Whether this worker is active and reads the log, or passive and able to take over."""
        if self._stopping():
            return HealthVerdict(False, "stopping")
        return self._active_ready() if self._active else self._passive_ready()

    def _active_ready(self) -> HealthVerdict:
        age = self.main.silent_s or 0.0
        if not self._reading:
            return HealthVerdict(False, "active, but the source's log is not read")
        if age > self._patience_s:
            return HealthVerdict(False, f"active, but nothing was read for {age:.1f} s")
        if not self._owns():
            return HealthVerdict(
                False,
                f"active, but the store has taken nothing for {self._patience_s:g} s: another"
                " worker may own the chain",
            )
        return HealthVerdict(True, "active, reads the log")

    def _passive_ready(self) -> HealthVerdict:
        age = self._chain_seen.silent_s
        if age is None:
            return HealthVerdict(False, "starting")
        if age > self._patience_s:
            return HealthVerdict(False, f"passive, but the store has not answered for {age:.1f} s")
        return HealthVerdict(True, f"passive, saw the chain {age:.1f} s ago")


def health_of(settings: Settings, stopping: threading.Event) -> Health:
    """Made for ``settings``, until ``stopping``."""
    return Health(
        limit_s=limit_of(settings),
        patience_s=settings.capture.takeover_after_s,
        stopping=stopping.is_set,
    )


def limit_of(settings: Settings) -> float:
    """How long one turn may take at the most: it waits for an answer of the source, and for one of
    the store with all repetitions."""
    return settings.capture.mark_timeout_s + settings.store.retry_s + settings.store.timeout_s
