"""A connection to the simulated source, and state that both its ends share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from devtools.simulation.database import Database
from devtools.simulation.log import LogEntry
from devtools.simulation.scheduler import Process, World
from tideline.contract.errors import Unavailable
from tideline.contract.position import SourcePosition


class Trouble(Protocol):
    """The faults at the source's border."""

    def on_point(self, name: str) -> None: ...

    def on_message(self, entry: LogEntry, index: int) -> None: ...

    def pause_s(self) -> float:
        """Return how long the next statement takes."""


@dataclass(eq=False)
class Connection:
    """A connection. It breaks when the server resets it, or another session takes its slot."""

    database: Database
    generation: int
    open: bool = True

    def check(self) -> None:
        alive = self.open and self.database.up and self.generation == self.database.resets
        if not alive:
            raise Unavailable("the connection to the source broke")


class SourceSide:
    """The shared state of a source's side.

    ``flaws`` are its seeded bugs in this run.
    """

    def __init__(
        self,
        world: World,
        database: Database,
        *,
        process: Process,
        trouble: Trouble,
        nap: Callable[[], None],
        flaws: frozenset[str] = frozenset(),
    ) -> None:
        self.world = world
        self.database = database
        self.process = process
        self.trouble = trouble
        self.nap = nap
        self.flaws = flaws
        self.rounds = itertools.count()
        self._first: SourcePosition | None = None
