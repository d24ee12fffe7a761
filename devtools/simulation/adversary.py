"""The adversary: causes the scenario's faults, each at its time."""

from __future__ import annotations

import random

from devtools.simulation import injectors
from devtools.simulation.faults import STORE_WINDOWS, TERMINAL, Fault, KillPoint
from devtools.simulation.scenario import PlannedFault
from devtools.simulation.scheduler import Process
from devtools.simulation.stage import SimulatedStage

_RARE = (
    KillPoint.BEFORE_RELEASE,
    KillPoint.AFTER_RELEASE,
    KillPoint.AFTER_TAKEOVER,
    KillPoint.REQUEST_CLAIMED,
)
"""Points that few processes reach: the first one is killed there."""


class Adversary:
    """Causes the scenario's faults.

    ``over``: all faults that come with the workload have been begun.
    """

    def __init__(self, rig: SimulatedStage) -> None:
        self.over = False
        self._rig = rig
        self._injecting = 0

    def begin(self) -> None:
        for planned in self._rig.scenario.faults:
            if planned.fault is Fault.STORE_CONDITION_IGNORED:
                injectors.ignore_conditions(self._rig)
        world = self._rig.world
        world.spawn(Process("adversary"), "adversary", self._run)

    def _run(self) -> None:
        world, began = self._rig.world, self._rig.world.now
        for planned in self._rig.scenario.faults:
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
            injectors.trouble_store(self._rig, planned.fault, own)
        else:
            injectors.INJECTORS[planned.fault](self._rig, own)

    def arm(self, point: KillPoint, own: random.Random) -> None:
        """Kill the process that next reaches ``point``, soon."""
        left = own.choice((1, 1, 2, 4))
        self._rig.active_faults.await_process(point, 1 if point in _RARE else left)
        if point in (KillPoint.BEFORE_RELEASE, KillPoint.AFTER_RELEASE):
            injectors.stop_cleanly(self._rig, own)
        if point is KillPoint.AFTER_TAKEOVER:
            active = self._rig.active()
            if active is not None:
                self._rig.world.kill(active)

    def end(self) -> None:
        """Cause the fault that ends the pipeline, if the scenario has one: it must stop by name."""
        for planned in self._rig.scenario.faults:
            if planned.fault in TERMINAL:
                injectors.end_pipeline(self._rig, planned.fault, random.Random(planned.seed))
