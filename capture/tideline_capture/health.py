"""Liveness and readiness of this process, for a worker's ``/healthz`` and ``/readyz``.

Its loops report each turn. The judgement is made on request, by another thread: a loop that hangs
cannot hide it. ``docs/METRICS.md`` says what the answers mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tideline.settings import Settings
from tideline.system import Event


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """An answer with its reason, for people; it contains no secret and no row's value."""

    ok: bool
    reason: str


class Loop:
    """A loop of this process, watched from its first turn on."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self._clock = clock
        self._turned_at: float | None = None

    def turn(self) -> None:
        """Report a turn of the loop; called by its own thread alone."""
        self._turned_at = self._clock()

    @property
    def silent_s(self) -> float | None:
        """Return the seconds since the loop's last turn; None before the first one."""
        return None if self._turned_at is None else self._clock() - self._turned_at


class Health:
    """The reports of the worker's threads.

    ``limit_s``: a loop without a turn for longer hangs. ``patience_s``: an active worker that has
    not read, or is not surely the chain's owner, for longer is not ready; nor is a passive one
    whose probes of the chain were not answered for as long.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        limit_s: float = 150.0,
        patience_s: float = 15.0,
        stopping: Callable[[], bool] = lambda: False,
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
        """Note that a passive worker's probe of the chain was answered."""
        self._chain_seen.turn()

    def active(self, owns: Callable[[], bool]) -> None:
        """Note that this worker extends the chain from now on; ``owns``: whether it is surely its
        own."""
        self._owns = owns
        self._active = True

    def reading(self, reads: bool) -> None:
        """Note whether a session reads the source's log now."""
        self._reading = reads

    def alive(self) -> HealthVerdict:
        """Judge whether every loop had a turn in the last ``limit_s``."""
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
        """Judge whether this worker is active and reads the log, or passive and able to take
        over."""
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


def health_of(settings: Settings, stopping: Event, clock: Callable[[], float]) -> Health:
    """Build the health of a worker with ``settings``, until ``stopping``."""
    return Health(
        clock=clock,
        limit_s=limit_of(settings),
        patience_s=settings.capture.takeover_after_s,
        stopping=stopping.is_set,
    )


def limit_of(settings: Settings) -> float:
    """Return the longest time of one turn: a wait for the source, and one for the store with all
    retries."""
    return settings.capture.mark_timeout_s + settings.store.retry_s + settings.store.timeout_s
