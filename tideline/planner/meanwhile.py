"""Collects the changes of a table between a verification's first chunk and the target's version."""

from __future__ import annotations

from tideline.contract.manifest import Manifest, Part, TableCondition, TableState
from tideline.contract.schema import Verdict
from tideline.planner.past import Past
from tideline.planner.progress import foreign_owner
from tideline.planner.standing import strayed
from tideline.warehouse.state import TargetState

_TOUCHING = ("c", "u", "d")
"""Operations after which a row differs from what a chunk held; a dump's rows are not among them."""


class Held(Exception):
    """The reason why a table cannot be compared."""


class Meanwhile:
    """The changes of a table after sequence ``low``; ``end`` is the last manifest examined."""

    def __init__(self, name: str, low: int) -> None:
        self.touched: list[Part] = []
        self.end: Manifest | None = None
        self._name = name
        self._low = low
        self._doubted = False

    def look(self, manifest: Manifest) -> None:
        """Raise Held when the table changed as a whole, or in ways that its parts do not show."""
        name, low = self._name, self._low
        for event in manifest.schema_events:
            # A column replaced by another of its name and type: a step without a new schema.
            same = event.before == event.after and not event.steps
            neutral = event.verdict == Verdict.NEUTRAL.value and same
            if event.table == name and event.seq > low and not neutral:
                raise Held(f"its columns changed meanwhile (sequence {event.seq}): verify again")
        for truncate in manifest.truncates:
            if truncate.table == name and truncate.seq > low:
                raise Held(f"it was truncated meanwhile (sequence {truncate.seq}): verify again")
        healed = any(floor.table == name for floor in manifest.floors)
        if self._doubted and healed:
            raise Held("it was in doubt meanwhile, and dumped anew: verify again")
        state = None if manifest.state is None else manifest.state.tables.get(name)
        if state is not None:
            self._doubted = state.condition is not TableCondition.LIVE
        self.touched += [
            part
            for part in manifest.parts
            if part.table == name and part.last_seq > low and _touches(part)
        ]
        self.end = manifest


def check_table(
    name: str, then: TableState, now: TableState, target: TargetState, tail: Manifest, past: Past
) -> None:
    """Raise Held unless the target can be compared with the rows that were read."""
    if now.condition in (TableCondition.PARKED, TableCondition.BLOCKED):
        raise Held(f"it is {now.condition.value}: {now.reason or 'no reason given'}")
    if now.schema is None:
        raise Held("nothing of it is captured yet")
    if then.generation != now.generation:
        raise Held("it was started anew while it was being verified; verify it again")
    owner = foreign_owner(target, tail, name)
    if owner is not None:
        raise Held(owner)
    why_strayed = strayed(past, tail, name, target)
    if why_strayed:
        raise Held(why_strayed)
    if target.went_back:
        raise Held(
            "its target was set back behind what is applied (RESTORE): dump and merge it, then"
            " verify it again"
        )


def _touches(part: Part) -> bool:
    return any(part.operations.get(operation) for operation in _TOUCHING)
