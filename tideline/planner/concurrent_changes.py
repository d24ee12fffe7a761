"""Collects the changes of a table between a verification's first chunk and the target's version."""

from __future__ import annotations

from tideline.contract.manifest import Manifest, Part
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.part import LOGGED
from tideline.contract.schema import Verdict
from tideline.planner.applied_chain import strayed
from tideline.planner.chain_index import ChainIndex
from tideline.planner.targets import not_in_use, other_owner
from tideline.warehouse.state import TargetState


class NotComparable(Exception):
    """The reason why a table cannot be compared."""


class ConcurrentChanges:
    """The changes of a table after sequence ``low``; ``end`` is the last manifest examined."""

    def __init__(self, name: str, low: int) -> None:
        self.touched: list[Part] = []
        self.end: Manifest | None = None
        self._name = name
        self._low = low
        self._doubted = False

    def look(self, manifest: Manifest) -> None:
        """Raise NotComparable when the table changed as a whole, or in ways that its parts do not
        show."""
        name, low = self._name, self._low
        for event in manifest.schema_events:
            # A column replaced by another of its name and type: a step without a new schema.
            same = event.before == event.after and not event.steps
            neutral = event.verdict == Verdict.NEUTRAL.value and same
            if event.table == name and event.seq > low and not neutral:
                raise NotComparable(
                    f"its columns changed meanwhile (sequence {event.seq}): verify again"
                )
        for truncate in manifest.truncates:
            if truncate.table == name and truncate.seq > low:
                raise NotComparable(
                    f"it was truncated meanwhile (sequence {truncate.seq}): verify again"
                )
        healed = any(delete_before.table == name for delete_before in manifest.deletes_before)
        if self._doubted and healed:
            raise NotComparable("it was in doubt meanwhile, and dumped again: verify again")
        state = None if manifest.state is None else manifest.state.tables.get(name)
        if state is not None:
            self._doubted = state.condition is not TableCondition.ACTIVE
        self.touched += [
            part
            for part in manifest.parts
            if part.table == name and part.last_seq > low and _touches(part)
        ]
        self.end = manifest


def check_table(
    name: str,
    then: TableState,
    now: TableState,
    target: TargetState,
    tail: Manifest,
    chain_index: ChainIndex,
) -> None:
    """Raise NotComparable unless the target can be compared with the rows that were read."""
    if now.condition in (TableCondition.QUARANTINED, TableCondition.SCHEMA_BLOCKED):
        raise NotComparable(f"it is {now.condition.value}: {now.reason or 'no reason given'}")
    if now.schema is None:
        raise NotComparable("nothing of it is captured yet")
    if then.generation != now.generation:
        raise NotComparable("it was restarted while it was being verified; verify it again")
    owner = other_owner(target, tail, name) or not_in_use(target, name)
    if owner is not None:
        raise NotComparable(owner)
    why_strayed = strayed(chain_index, tail, name, target)
    if why_strayed:
        raise NotComparable(why_strayed)
    if target.went_back:
        raise NotComparable(
            "its target was set back behind what is applied (RESTORE): dump and merge it, then"
            " verify it again"
        )


def _touches(part: Part) -> bool:
    return any(part.operations.get(operation) for operation in LOGGED)
