"""The steps of columns in a merge: the origins of columns at a plan's end, row by row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec.structs import replace

from tideline.contract.evolution import Ancestor, ancestors
from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.steps import StepKind


class Columns:
    """The origins of columns at a plan's end, for rows that are older than its changes."""

    def __init__(self, plan: TablePlan, flaws: frozenset[str]) -> None:
        self._plan = plan
        self._changes = flawed(plan.changes, flaws)
        self._seqs = [change.seq for change in self._changes]
        self._found: dict[tuple[str, int], dict[str, Ancestor]] = {}

    def since(self, schema: str, seq: int) -> dict[str, Ancestor]:
        """Return the origins for a row of ``seq``, which has the columns of ``schema``."""
        at = bisect_right(self._seqs, seq)
        known = self._found.get((schema, at))
        if known is None:
            names = self._plan.schemas[schema].column_names
            known = self._found[schema, at] = ancestors(names, self._changes[at:])
        return known


def flawed(changes: Sequence[PlannedChange], flaws: frozenset[str]) -> tuple[PlannedChange, ...]:
    """Return the changes as a faulty merge takes them, without something."""
    left_out = {StepKind.RENAME} if "forgets-renames" in flaws else set()
    return tuple(
        replace(
            change,
            steps=tuple(
                replace(step, default=None) if "fills-nothing" in flaws else step
                for step in change.steps
                if step.kind not in left_out
            ),
        )
        for change in changes
    )
