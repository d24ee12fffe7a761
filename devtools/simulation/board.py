"""The adversary: brings about the scenario's faults, and counts what came of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devtools.simulation import injectors
from devtools.simulation.faults import STORE_WINDOWS, TERMINAL, Fault, KillPoint
from devtools.simulation.history import Violation
from devtools.simulation.log import LogEntry
from devtools.simulation.scenario import PlannedFault, Scenario
from devtools.simulation.scheduler import Process
from devtools.simulation.storage import Misfortune
from tideline.contract.errors import Fenced, InvariantBroken, Misconfigured, SourceLost, Unavailable

if TYPE_CHECKING:
    from devtools.simulation.run import Rig

_CHANCE = 0.6
_POINT_WAIT_S = 14.0
"""A kill that found nobody at its point by then is given up."""


@dataclass(slots=True)
class _Armed:
    """A kill that waits for a worker to come to its point, for the ``left``-th time."""

    point: str
    left: int
    until: float


class Board:
    """``hits`` counts faults and kill points that had an effect; ``complaints`` are violations that
    only the rig can see. ``over``: all faults that come with the workload have been begun."""

    def __init__(self, rig: Rig, scenario: Scenario) -> None:
        self.rig = rig
        self.hits: Counter[str] = Counter()
        self.complaints: list[Violation] = []
        self.final = False
        self.over = False
        self.healed = False
        self.windows: dict[Fault, float] = {}
        self.expected_stop: Fault | None = None
        self.expected_refusals = 0
        self._scenario = scenario
        self._armed: list[_Armed] = []
        self._injecting = 0
        self._own = random.Random(f"board {scenario.seed}")
        self._quick = random.Random(f"quick {scenario.seed}")

    def hit(self, fault: Fault) -> None:
        self.hits[fault.name] += 1

    # -- the course ----------------------------------------------------------------------------

    def begin(self) -> None:
        for planned in self._scenario.faults:
            if planned.fault is Fault.STORE_CONDITION_IGNORED:
                injectors.ignore_conditions(self)
        world = self.rig.world
        world.spawn(Process("adversary"), "adversary", self._run)

    def _run(self) -> None:
        world, began = self.rig.world, self.rig.world.now
        for planned in self._scenario.faults:
            if planned.fault in TERMINAL or planned.fault is Fault.STORE_CONDITION_IGNORED:
                continue
            world.sleep(max(0.0, began + planned.at_s - world.now))
            world.spawn(Process("fault"), planned.fault.name, lambda p=planned: self._inject(p))  # type: ignore[misc]
        world.sleep(5.0)
        while self._injecting:
            world.sleep(0.5)
        self.over = True

    def _inject(self, planned: PlannedFault) -> None:
        self._injecting += 1
        self._bring_about(planned)
        self._injecting -= 1

    def _bring_about(self, planned: PlannedFault) -> None:
        own = random.Random(planned.seed)
        if planned.point is not None:
            self.arm(planned.point, own)
        elif planned.fault in STORE_WINDOWS:
            injectors.trouble_store(self, planned.fault, own)
        else:
            injectors.INJECTORS[planned.fault](self, own)

    def arm(self, point: KillPoint, own: random.Random) -> None:
        """Kill whoever comes to ``point``, soon."""
        left = own.choice((1, 1, 2, 4))
        self._armed.append(_Armed(point.value, left, self.rig.world.now + _POINT_WAIT_S))
        if point in (KillPoint.BEFORE_RELEASE, KillPoint.AFTER_RELEASE):
            self._armed[-1].left = 1
            injectors.stop_cleanly(self, own)
        if point is KillPoint.AFTER_TAKEOVER:
            self._armed[-1].left = 1
            active = self.rig.active()
            if active is not None:
                self.rig.world.kill(active)
        if point in (KillPoint.REQUEST_CLAIMED,):
            self._armed[-1].left = 1

    def heal(self) -> None:
        """No fault has an effect from now on."""
        self.healed = True
        self.windows.clear()
        self._armed.clear()
        self.rig.bucket.listed = None

    def end(self) -> None:
        """The fault that ends the pipeline, if the scenario has one: it must stop by name."""
        for planned in self._scenario.faults:
            if planned.fault in TERMINAL:
                injectors.end_pipeline(self, planned.fault, random.Random(planned.seed))

    # -- what workers meet ---------------------------------------------------------------------

    def on_point_of(self, process: Process) -> Callable[[str], None]:
        return lambda name: self.at_point(process, name)

    def at_point(self, process: Process, name: str) -> None:
        """A worker is at the point; it may be its last."""
        for armed in list(self._armed):
            if self.rig.world.now > armed.until:
                self._armed.remove(armed)
            elif armed.point == name and process.alive:
                armed.left -= 1
                if armed.left <= 0:
                    self._armed.remove(armed)
                    self.hits[f"kill {name}"] += 1
                    self.hit(Fault.KILL)
                    self.rig.world.kill(process)

    def trouble(self, process: Process) -> _Trouble:
        return _Trouble(self, process)

    def on_claim(self) -> None:
        """Messages were claimed from the queue."""
        if self.windows.pop(Fault.REDIS_LOST_AFTER_POP, 0.0) > self.rig.world.now:
            self.hit(Fault.REDIS_LOST_AFTER_POP)
            self.rig.redis.flush()
            process = self.rig.shims.process
            self.rig.world.kill(process)

    def pause_s(self) -> float:
        return self._quick.uniform(0.002, 0.02) if self._quick.random() < 0.9 else 0.15

    def fate(self, process: Process, kind: str, key: str) -> Misfortune:
        """What happens to a request to the store."""
        quick = self._quick
        usual = Misfortune(travel_s=quick.uniform(0.002, 0.03), answer_s=quick.uniform(0.001, 0.03))
        self._sent(process, kind, key)
        if self.healed:
            return usual
        for fault, until in list(self.windows.items()):
            if fault not in STORE_WINDOWS:
                continue
            if until < self.rig.world.now:
                del self.windows[fault]
                continue
            if fault is not Fault.STORE_DOWN and self._own.random() > _CHANCE:
                continue
            met = injectors.misfortune(fault, kind, key, self._own, usual)
            if met is not None:
                self.hit(fault)
                return met
        return usual

    def _sent(self, process: Process, kind: str, key: str) -> None:
        """Whoever sent it may die before the answer: the request travels on."""
        name = None
        if kind == "create" and "/log/" in key:
            name = KillPoint.MANIFEST_SENT.value
        elif kind == "put":
            name = KillPoint.PART_SENT.value
        if name is not None and any(armed.point == name for armed in self._armed):
            self.rig.world.later(0.001, lambda: self._killed_under_way(process, name))

    def _killed_under_way(self, process: Process, name: str) -> None:
        if process.alive and not process.frozen:
            self.at_point(process, name)

    # -- how workers end -----------------------------------------------------------------------

    def stopped(self, process: Process, error: BaseException) -> None:
        """A worker's process ended with ``error``: was there a reason?"""
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
    """`source.Trouble` of one process."""

    def __init__(self, board: Board, process: Process) -> None:
        self._board = board
        self._process = process

    def on_point(self, name: str) -> None:
        self._board.at_point(self._process, name)

    def on_message(self, entry: LogEntry, index: int) -> None:
        if entry.packed and index == 0:
            self._board.hit(Fault.COMPRESSION)

    def pause_s(self) -> float:
        return self._board.pause_s()
