"""The scene with those who act on it besides the workers."""

from __future__ import annotations

from devtools.simulation.askers import Askers
from devtools.simulation.board import FaultBoard
from devtools.simulation.merger import Merger
from devtools.simulation.scenario import Scenario
from devtools.simulation.scene import Scene


class SimulatedStage(Scene):
    """The scene as injectors of faults, and the oracle's history, see it."""

    def __init__(self, scenario: Scenario, flaws: frozenset[str]) -> None:
        super().__init__(scenario, flaws)
        self.board = FaultBoard(self)
        self.askers = Askers(self)
        self.merger = Merger(self, self.board, self.askers)
