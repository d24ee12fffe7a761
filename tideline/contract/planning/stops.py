"""Stops a table's plan where its owner wants to decide (``park``), and explains the choice.

Such a table is *blocked*, like one whose change no target can take: it is captured, and its merges
end before the change. *Quarantined* are tables of which nothing is captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tideline.contract.manifest import Manifest, SchemaEvent
from tideline.contract.modes import Mode
from tideline.contract.partition_fields import takes
from tideline.contract.printable import command
from tideline.contract.readers import Feature, features_of_column, unread
from tideline.contract.steps import ColumnStep, StepKind, at_once
from tideline.contract.table_layout import NO_LAYOUT, TableLayout


class Policy(msgspec.Struct, frozen=True, rename={"stops_at": "parks"}):
    """The reaction of a target to steps: kinds that its merges stop at, kinds that it does not
    follow, and whether it loses dropped columns too. Other kinds are followed, unless the target
    cannot: it has a column of the step in its ``layout``, or would need one of ``lacking``, the
    features that it lacks and that the readers named there lack too. ``mode`` is the target's.
    ``by_ids``: its format knows the columns of the layout by ids, not by names or folders, so that
    they may be renamed, and their types grow as far as the layout takes them."""

    stops_at: frozenset[StepKind] = frozenset()
    ignores: tuple[StepKind, ...] = ()
    drop_columns: bool = False
    layout: TableLayout = NO_LAYOUT
    lacking: Mapping[Feature, tuple[str, ...]] = msgspec.field(default_factory=dict)
    mode: Mode = Mode.CURRENT
    by_ids: bool = False

    @property
    def stops(self) -> bool:
        """Return whether there are steps that the target stops at."""
        return bool(self.stops_at or self.layout or self.lacking)

    def obstacle(self, step: ColumnStep) -> Obstacle | None:
        """Return why a target cannot follow ``step``; None if it can, or does not follow it."""
        if step.kind in self.ignores:
            return None
        if self._fixed(step):
            return Obstacle(f"the warehouse's table is {self.layout}", _OTHER_LAYOUT)
        for feature in _needed(step, self.mode):
            if feature in self.lacking:
                return Obstacle(unread(feature, self.lacking[feature]), _OTHER_READERS)
        return None

    def _fixed(self, step: ColumnStep) -> bool:
        """Return whether the target's layout keeps the column of ``step`` as it is."""
        if step.kind is StepKind.DROP:
            return step.column in self.layout.columns
        if step.kind is StepKind.RENAME:
            return not self.by_ids and step.was in self.layout.columns
        if step.kind is StepKind.WIDEN:
            fields = (one for one in self.layout.fields if one.column == step.column)
            return not all(self.by_ids and takes(one, step.type) for one in fields)
        return False


class Obstacle(msgspec.Struct, frozen=True):
    """The reason for which a target cannot follow a step, and the way to remove it."""

    reason: str
    remedy: str


_OTHER_LAYOUT = (
    "choose another layout for it in the settings (docs/LAYOUT.md) and run {command}, which goes on"
    " behind the change"
)
_OTHER_READERS = (
    "leave these out of the table's readers (docs/LAYOUT.md), or set on_change.{kind} to ignore,"
    " and merge again"
)


def _needed(step: ColumnStep, mode: Mode) -> list[Feature]:
    """Return the features that a target needs to follow a step."""
    if step.kind is StepKind.RENAME:
        return [Feature.COLUMN_MAPPING]
    if step.kind is StepKind.DROP and mode in (Mode.CURRENT, Mode.SOFT_DELETES):
        # Emptied by metadata alone; the other modes keep the values of the past.
        return [Feature.COLUMN_MAPPING]
    if step.kind is StepKind.WIDEN:
        return [Feature.TYPE_WIDENING]
    if step.kind is StepKind.ADD:
        return features_of_column(step.column, step.type)
    return []


FOLLOW_ALL = Policy()


class Stop(msgspec.Struct, frozen=True):
    """A schema event that a table's plan ends before. ``obstacle``: why its target cannot take it;
    None: the settings say to stop."""

    table: str
    seq: int
    step: ColumnStep
    obstacle: Obstacle | None = None

    @property
    def reason(self) -> str:
        if self.obstacle is not None:
            return f"{describe_step(self.step)}, and {self.obstacle.reason}"
        return f"{describe_step(self.step)}, and on_change.{self.step.kind.value} is park"

    @property
    def hint(self) -> str:
        """Return the ways to continue."""
        kind = self.step.kind.value
        first = f"set on_change.{kind} to apply or ignore and merge again"
        if self.obstacle is not None:
            rebuild = command("rebuild", self.table)
            first = self.obstacle.remedy.format(command=rebuild, kind=kind)
        return (
            f"{first}, or begin behind the change: {command('dump', self.table)}, and when that has"
            " ended"
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
        obstacle = policy.obstacle(step)
        if obstacle is not None:
            return Stop(event.table, event.seq, step, obstacle)
    return None


def first_stop(
    manifests: Iterable[Manifest], table: str, policy: Policy, above_seq: int
) -> Stop | None:
    """Return the first event above ``above_seq`` that stops ``table``; None while there is none."""
    if not policy.stops:
        return None
    for manifest in manifests:
        for event in manifest.schema_events:
            if event.table == table and event.seq > above_seq:
                stop = stop_of(event, policy)
                if stop is not None:
                    return stop
    return None
