"""Scenarios of runs, drawn from a seed, so that they can be shown, cut down and replayed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from devtools.simulation.faults import (
    AT_START,
    MYSQL_ONLY,
    POSTGRES_ONLY,
    TERMINAL,
    Fault,
    KillPoint,
)
from devtools.simulation.log import DatabaseKind

TRANSACTIONS = 300
SPAN_S = 27.0
"""The approximate length of the workload, in the run's own time."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A planned fault. ``seed`` draws the details. ``point`` is where a kill happens."""

    at_s: float
    fault: Fault
    seed: int
    point: KillPoint | None = None

    def __str__(self) -> str:
        where = f" ({self.point.value})" if self.point else ""
        return f"{self.at_s:5.1f} s {self.fault.name}{where}"


@dataclass(frozen=True, slots=True)
class PlannedDump:
    """A request; ``scope`` is ``whole``, ``all``, ``keys``, ``range`` or ``range-keys``.

    ``commands`` are given to it later: (after how many seconds, action).
    """

    at_s: float
    scope: str
    table: int
    seed: int
    commands: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run. ``faulty`` False: nothing goes wrong, and commits are visible at once."""

    seed: int
    kind: DatabaseKind
    transactions: int
    sessions: int
    faults: tuple[PlannedFault, ...]
    dumps: tuple[PlannedDump, ...]
    chunk_rows: int
    parallel: int
    ahead: int
    parts_max: int
    faulty: bool = True

    def only(
        self,
        *,
        faults: tuple[int, ...] | None = None,
        dumps: tuple[int, ...] | None = None,
        transactions: int | None = None,
    ) -> Scenario:
        """Return the same with only these faults and dumps, by number, and fewer transactions."""
        kept = self.faults if faults is None else tuple(self.faults[at] for at in faults)
        asked = self.dumps if dumps is None else tuple(self.dumps[at] for at in dumps)
        count = self.transactions if transactions is None else transactions
        return replace(self, faults=kept, dumps=asked, transactions=count)


def draw(seed: int, *, kind: DatabaseKind | None = None, focus: tuple[Fault, ...] = ()) -> Scenario:
    """Draw the scenario of ``seed``: at least five faults and two dumps. ``focus`` comes in
    addition.

    Kinds of faults and kill points take turns over successive seeds, so that all are met soon.
    """
    own = random.Random(f"scenario {seed}")
    kind = kind or (DatabaseKind.POSTGRES if seed % 3 else DatabaseKind.MYSQL)
    excluded = MYSQL_ONLY if kind is DatabaseKind.POSTGRES else POSTGRES_ONLY
    usual = [one for one in Fault if one not in excluded | TERMINAL | AT_START]
    count = own.randint(5, 9)
    kinds = [usual[(seed * 7 + at * 5) % len(usual)] for at in range(2)]
    kinds += [own.choice(usual) for _ in range(count - 4)]
    kinds += [Fault.KILL, own.choice((Fault.KILL, Fault.STOP, Fault.SOURCE_RESET))]
    kinds += focus
    points = list(KillPoint)
    faults = []
    for at, one in enumerate(kinds):
        point = points[(seed * 3 + at) % len(points)] if one is Fault.KILL else None
        faults.append(PlannedFault(own.uniform(3.0, SPAN_S), one, own.getrandbits(32), point))
    if own.random() < 0.12:
        faults.append(PlannedFault(0.0, Fault.STORE_CONDITION_IGNORED, own.getrandbits(32)))
    if own.random() < 0.3:
        last = own.choice([one for one in TERMINAL_ORDER if one not in excluded])
        faults.append(PlannedFault(10_000.0, last, own.getrandbits(32)))
    return Scenario(
        seed=seed,
        kind=kind,
        transactions=TRANSACTIONS + own.randint(0, 20),
        sessions=own.randint(3, 5),
        faults=tuple(sorted(faults, key=lambda one: one.at_s)),
        dumps=_dumps(own),
        chunk_rows=own.choice((6, 9, 14)),
        parallel=own.randint(1, 3),
        ahead=own.randint(0, 3),
        parts_max=own.choice((12, 40, 10_000)),
    )


_PLAIN_S = 40.0
"""The time by which the one user of a run without faults has gone."""
TERMINAL_ORDER = sorted(TERMINAL, key=lambda one: one.name)


def without_faults(seed: int, kind: DatabaseKind | None = None) -> Scenario:
    """Draw a run on a fine day: nothing goes wrong.

    Commits are visible at once, one user alone inserts and updates whole rows, and dumps come when
    he has gone. A bug that fails here needs no simulator.
    """
    drawn = draw(seed, kind=kind)
    dumps = tuple(replace(one, at_s=one.at_s + _PLAIN_S, commands=()) for one in drawn.dumps)
    return replace(drawn, faults=(), dumps=dumps, sessions=1, faulty=False)


def _dumps(own: random.Random) -> tuple[PlannedDump, ...]:
    dumps = [PlannedDump(own.uniform(4, 12), "whole", own.randrange(3), own.getrandbits(32))]
    for _ in range(own.randint(1, 3)):
        scope = own.choice(("whole", "all", "keys", "range", "range-keys"))
        commands: list[tuple[float, str]] = []
        if own.random() < 0.3:
            commands = [(own.uniform(0.1, 1.5), "pause"), (own.uniform(2, 5), "resume")]
        elif own.random() < 0.2:
            commands = [(own.uniform(0.1, 1.5), "cancel")]
        elif own.random() < 0.2:
            commands = [(own.uniform(0.1, 1.0), "tune")]
        dumps.append(
            PlannedDump(
                own.uniform(6, SPAN_S - 2),
                scope,
                own.randrange(3),
                own.getrandbits(32),
                tuple(commands),
            )
        )
    return tuple(sorted(dumps, key=lambda one: one.at_s))
