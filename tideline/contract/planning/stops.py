"""Stops a table's plan where its owner wants to decide (``park``), and explains the choice.

Such a table is *blocked*, like one whose change no target can take: it is captured, and its merges
end before the change. *Quarantined* are tables of which nothing is captured.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tideline.contract.manifest import Manifest, SchemaEvent
from tideline.contract.printable import command
from tideline.contract.steps import ColumnStep, StepKind, at_once


class Policy(msgspec.Struct, frozen=True, rename={"stops_at": "parks"}):
    """The reaction of a target to steps: kinds that its merges stop at, kinds that it does not
    follow, and whether it loses dropped columns too. Other kinds are followed."""

    stops_at: frozenset[StepKind] = frozenset()
    ignores: tuple[StepKind, ...] = ()
    drop_columns: bool = False


FOLLOW_ALL = Policy()


class Stop(msgspec.Struct, frozen=True):
    """A schema event that a table's plan ends before."""

    table: str
    seq: int
    step: ColumnStep

    @property
    def reason(self) -> str:
        return f"{describe_step(self.step)}, and on_change.{self.step.kind.value} is park"

    @property
    def hint(self) -> str:
        """Return the two ways to continue."""
        return (
            f"set on_change.{self.step.kind.value} to apply or ignore and merge again, or begin"
            f" behind the change: {command('dump', self.table)}, and when that has ended"
            f" {command('rebuild', self.table)} (with --since-dump where its mode keeps the past,"
            " which begins there then; docs/SCHEMA_CHANGES.md)"
        )

    def __str__(self) -> str:
        return stop_text(self.seq, self.reason, self.hint)


def stop_text(seq: int, reason: str, hint: str) -> str:
    """Return the one line that reports a stop."""
    return f"blocked before sequence {seq}: {reason}; {hint}"


def describe_step(step: ColumnStep) -> str:
    """Describe a step in words."""
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
    """Return the step for which ``event`` stops its table, if one does."""
    for step in at_once(event.steps):
        if step.kind in policy.stops_at:
            return Stop(event.table, event.seq, step)
    return None


def first_stop(
    manifests: Iterable[Manifest], table: str, policy: Policy, above_seq: int
) -> Stop | None:
    """Return the first event above ``above_seq`` that stops ``table``; None while there is none."""
    if not policy.stops_at:
        return None
    for manifest in manifests:
        for event in manifest.schema_events:
            if event.table == table and event.seq > above_seq:
                stop = stop_of(event, policy)
                if stop is not None:
                    return stop
    return None
