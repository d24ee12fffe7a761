"""Where a table's plan stops because its owner wants to decide, and what he is told."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tideline.contract.manifest import Manifest, SchemaEvent
from tideline.contract.steps import ColumnStep, StepKind, at_once

_CHOICES = {StepKind.RETYPE: "apply", StepKind.KEY: "apply"}


class Policy(msgspec.Struct, frozen=True):
    """How a target reacts to steps: kinds that stop it, kinds that it does not follow, and whether
    a column that is dropped goes from it too. Other kinds are followed."""

    parks: frozenset[StepKind] = frozenset()
    ignores: tuple[StepKind, ...] = ()
    drop_columns: bool = False


FOLLOW_ALL = Policy()


class Stop(msgspec.Struct, frozen=True):
    """A schema event that a table's plan ends before."""

    table: str
    seq: int
    step: ColumnStep

    def __str__(self) -> str:
        kind = self.step.kind.value
        choice = _CHOICES.get(self.step.kind, "apply or ignore")
        return (
            f"parked before sequence {self.seq}: {told(self.step)}, and on_change.{kind} is park."
            f" Either set on_change.{kind} to {choice} and merge again, or begin behind the change:"
            f" `tideline dump {self.table}`, and when that has ended remove the target's directory"
            " and merge (docs/SCHEMA_CHANGES.md)"
        )


def told(step: ColumnStep) -> str:
    """A step in words."""
    words = {
        StepKind.ADD: f"column {step.column!r} was added",
        StepKind.DROP: f"column {step.column!r} was dropped",
        StepKind.RENAME: f"column {step.was!r} was renamed to {step.column!r}",
        StepKind.WIDEN: f"column {step.column!r} was widened to {step.type}",
        StepKind.RETYPE: f"column {step.column!r} got the type {step.type}",
        StepKind.KEY: "the key was changed",
    }
    return words[step.kind]


def stop_of(event: SchemaEvent, policy: Policy) -> Stop | None:
    """The step for which ``event`` stops its table, if one does."""
    for step in at_once(event.steps):
        if step.kind in policy.parks:
            return Stop(event.table, event.seq, step)
    return None


def first_stop(
    manifests: Iterable[Manifest], table: str, policy: Policy, above_seq: int
) -> Stop | None:
    """The first event above ``above_seq`` that stops ``table``; None while there is none."""
    if not policy.parks:
        return None
    for manifest in manifests:
        for event in manifest.schema_events:
            if event.table == table and event.seq > above_seq:
                stop = stop_of(event, policy)
                if stop is not None:
                    return stop
    return None
