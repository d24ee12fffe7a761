"""The scene with those who act on it besides the workers."""

from __future__ import annotations

from devtools.simulation.active_faults import ActiveFaults
from devtools.simulation.clients import SimulatedClients
from devtools.simulation.merger import Merger
from devtools.simulation.scenario import Scenario
from devtools.simulation.scene import Scene


class SimulatedStage(Scene):
    """The scene as injectors of faults, and the oracle's history, see it."""

    def __init__(self, scenario: Scenario, flaws: frozenset[str]) -> None:
        super().__init__(scenario, flaws)
        self.active_faults = ActiveFaults(self)
        self.simulated_clients = SimulatedClients(self)
        self.merger = Merger(self, self.active_faults, self.simulated_clients)
