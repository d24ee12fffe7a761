"""Columns that come, go and change their names, on a schedule of its own, with dumps, kills and
truncates in between: in the end every value lies under the name that its column has then."""

from __future__ import annotations

import pytest

from devtools.simulation.faults import Fault, KillPoint
from devtools.simulation.log import DatabaseKind
from devtools.simulation.run import simulate
from devtools.simulation.scenario import TRANSACTIONS, PlannedDump, PlannedFault, Scenario

_FAULTS = (
    *(PlannedFault(3.0 + 6.0 * at, Fault.ADD_COLUMN, at) for at in range(4)),
    PlannedFault(9.0, Fault.KILL, 1, KillPoint.BETWEEN_PARTS_AND_MANIFEST),
    PlannedFault(12.0, Fault.TRUNCATE, 2),
    PlannedFault(15.0, Fault.TABLE_REPLACED, 3),
    PlannedFault(18.0, Fault.KILL, 4, KillPoint.AFTER_MANIFEST),
)
_DUMPS = tuple(PlannedDump(4.0 + 5.0 * at, "whole", 1 + at % 2, at) for at in range(5))


def schedule(kind: DatabaseKind) -> Scenario:
    return Scenario(
        seed=3,
        kind=kind,
        transactions=TRANSACTIONS,
        sessions=4,
        faults=tuple(sorted(_FAULTS, key=lambda one: one.at_s)),
        dumps=_DUMPS,
        chunk_rows=6,
        parallel=2,
        ahead=2,
        parts_max=40,
    )


@pytest.mark.parametrize(
    ("kind", "steps"),
    [(DatabaseKind.POSTGRES, ("add", "rename")), (DatabaseKind.MYSQL, ("add", "rename", "drop"))],
)
def test_every_step_is_followed(kind: DatabaseKind, steps: tuple[str, ...]) -> None:
    found = simulate(schedule(kind))
    assert found.violations == []
    for step in steps:
        assert found.counts.get(step, 0) > 0, f"no {step} was certain: {found.counts}"


@pytest.mark.parametrize("flaw", ["forgets-renames", "fills-nothing"])
def test_a_step_that_is_not_followed_is_noticed(flaw: str) -> None:
    assert simulate(schedule(DatabaseKind.MYSQL), frozenset({flaw})).violations
