"""Faults in progress as workers meet them, and their effects."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from devtools.simulation.faults import STORE_WINDOWS, Fault, KillPoint
from devtools.simulation.history import Violation
from devtools.simulation.log import LogEntry
from devtools.simulation.scene import Scene
from devtools.simulation.scheduler import Process
from devtools.simulation.storage import Misfortune
from tideline.contract.errors import Fenced, InvariantBroken, Misconfigured, SourceLost, Unavailable

_CHANCE = 0.6
_POINT_WAIT_S = 14.0
"""The limit after which a kill that found no process at its point is given up."""


@dataclass(slots=True)
class _Armed:
    """A kill that waits for a worker to reach its point, for the ``left``-th time."""

    point: str
    left: int
    until: float


class ActiveFaults:
    """The faults in progress, and their effects.

    ``hits`` counts faults and kill points that had an effect; ``complaints`` are violations that
    only the rig can see.
    """

    def __init__(self, scene: Scene) -> None:
        self.hits: Counter[str] = Counter()
        self.complaints: list[Violation] = []
        self.final = False
        self.healed = False
        self.windows: dict[Fault, float] = {}
        self.expected_stop: Fault | None = None
        self.expected_refusals = 0
        self._scene = scene
        self._armed: list[_Armed] = []
        self._own = random.Random(f"board {scene.scenario.seed}")
        self._quick = random.Random(f"quick {scene.scenario.seed}")

    def hit(self, fault: Fault) -> None:
        self.hits[fault.name] += 1

    def await_process(self, point: KillPoint, left: int) -> None:
        """Kill the process that comes to ``point``, for the ``left``-th time, soon."""
        self._armed.append(_Armed(point.value, left, self._scene.world.now + _POINT_WAIT_S))

    def heal(self) -> None:
        """End the effect of every fault."""
        self.healed = True
        self.windows.clear()
        self._armed.clear()
        self._scene.bucket.listed = None

    # -- what workers meet ---------------------------------------------------------------------

    def on_point_of(self, process: Process) -> Callable[[str], None]:
        return lambda name: self.at_point(process, name)

    def at_point(self, process: Process, name: str) -> None:
        """Note that a worker is at the point; it may be its last."""
        for armed in list(self._armed):
            if self._scene.world.now > armed.until:
                self._armed.remove(armed)
            elif armed.point == name and process.alive:
                armed.left -= 1
                if armed.left <= 0:
                    self._armed.remove(armed)
                    self.hits[f"kill {name}"] += 1
                    self.hit(Fault.KILL)
                    self._scene.world.kill(process)

    def trouble(self, process: Process) -> _Trouble:
        return _Trouble(self, process)

    def on_claim(self, process: Process) -> None:
        """Note that ``process`` has claimed messages from the queue."""
        if self.windows.pop(Fault.REDIS_LOST_AFTER_POP, 0.0) > self._scene.world.now:
            self.hit(Fault.REDIS_LOST_AFTER_POP)
            self._scene.redis.flush()
            self._scene.world.kill(process)

    def pause_s(self) -> float:
        return self._quick.uniform(0.002, 0.02) if self._quick.random() < 0.9 else 0.15

    def fate(self, process: Process, kind: str, key: str) -> Misfortune:
        """Decide what happens to a request to the store."""
        quick = self._quick
        usual = Misfortune(travel_s=quick.uniform(0.002, 0.03), answer_s=quick.uniform(0.001, 0.03))
        self._sent(process, kind, key)
        if self.healed:
            return usual
        for fault, until in list(self.windows.items()):
            if fault not in STORE_WINDOWS:
                continue
            if until < self._scene.world.now:
                del self.windows[fault]
                continue
            if fault is not Fault.STORE_DOWN and self._own.random() > _CHANCE:
                continue
            met = _misfortune(fault, kind, key, self._own, usual)
            if met is not None:
                self.hit(fault)
                return met
        return usual

    def _sent(self, process: Process, kind: str, key: str) -> None:
        """Note that a request was sent.

        Its sender may die before the answer: the request travels on.
        """
        name = None
        if kind == "create" and "/log/" in key:
            name = KillPoint.MANIFEST_SENT.value
        elif kind == "put":
            name = KillPoint.PART_SENT.value
        if name is not None and any(armed.point == name for armed in self._armed):
            self._scene.world.later(0.001, lambda: self._killed_under_way(process, name))

    def _killed_under_way(self, process: Process, name: str) -> None:
        if process.alive and not process.frozen:
            self.at_point(process, name)

    # -- how workers end -----------------------------------------------------------------------

    def stopped(self, process: Process, error: BaseException) -> None:
        """Note that a worker's process ended with ``error``; complain if there was no reason."""
        if isinstance(error, Fenced | Unavailable):
            return
        if isinstance(error, Misconfigured) and self.expected_refusals:
            self.hit(Fault.STORE_CONDITION_IGNORED)
            return
        if self.expected_stop is not None and isinstance(error, SourceLost | Misconfigured):
            return
        if isinstance(error, InvariantBroken):
            self.complain("X", f"a worker broke an invariant of its own: {error}")
        else:
            self.complain(
                "E", f"a worker stopped without a reason: {type(error).__name__}: {error}"
            )

    def complain(self, check: str, words: str) -> None:
        self.complaints.append(Violation(check, "*", None, words))


class _Trouble:
    """The `source.Trouble` of one process."""

    def __init__(self, active_faults: ActiveFaults, process: Process) -> None:
        self._active_faults = active_faults
        self._process = process

    def on_point(self, name: str) -> None:
        self._active_faults.at_point(self._process, name)

    def on_message(self, entry: LogEntry, index: int) -> None:
        if entry.packed and index == 0:
            self._active_faults.hit(Fault.COMPRESSION)

    def pause_s(self) -> float:
        return self._active_faults.pause_s()


def _misfortune(
    fault: Fault, kind: str, key: str, own: random.Random, usual: Misfortune
) -> Misfortune | None:
    """Return what ``fault`` does to a request, None when it does not concern it."""
    writes, manifest = kind in ("put", "create"), kind == "create" and "/log/" in key
    late = usual.travel_s + own.uniform(0.2, 1.5)
    timeout = "error sending request, kind: Timeout"
    match fault:
        case Fault.STORE_500:
            return replace(usual, error="status code: 500", effect=own.random() < 0.4)
        case Fault.STORE_503 | Fault.STORE_DOWN:
            return replace(usual, error="status code: 503", effect=False)
        case Fault.STORE_429:
            return replace(usual, error="status code: 429", effect=False)
        case Fault.STORE_TIMEOUT_BEFORE:
            return replace(usual, error=timeout, effect=False, answer_s=late)
        case Fault.STORE_TIMEOUT_AFTER:
            return replace(usual, error=timeout, answer_s=late)
        case Fault.STORE_OWN_412 if manifest:
            return replace(usual, error=timeout)
        case Fault.STORE_OWN_409 if kind == "create":
            return replace(usual, taken=True)
        case Fault.STORE_SLOW:
            return replace(usual, travel_s=own.uniform(0.3, 2.5), answer_s=own.uniform(0.1, 1.0))
        case Fault.STORE_SLOW_BODY if kind == "get":
            return replace(usual, answer_s=own.uniform(0.5, 2.0))
        case Fault.STORE_TRUNCATED_GET if kind == "get":
            return replace(usual, error="error decoding response body, kind: Decode")
        case Fault.STORE_LATE_DUPLICATE if writes:
            again = own.uniform(1.0, 12.0)
            if own.random() < 0.5:
                return replace(usual, error=timeout, effect=False, again_s=again)
            return replace(usual, again_s=again)
    return None
