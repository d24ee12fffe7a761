"""The steps of a schema event: what happens to the columns of a table, beyond its two schemas.

Two schemas do not distinguish a rename from a drop and an add, nor show what old rows hold in a new
column. The worker records that, where the source shows it; merges carry out each step at its
sequence.

The steps of an event are taken one after another, in their order: drops, renames, then types, adds,
and the key. So a name may be used again by the next step: a drop and an add of one name replace a
column by another of that name, and columns that exchange their names do so over a name in between
(`BETWEEN`), which no column of a source can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import count

import msgspec


class StepKind(StrEnum):
    """The kind of a column's change, or (``key``) of the choice of key columns."""

    ADD = "add"
    DROP = "drop"
    RENAME = "rename"
    WIDEN = "widen"
    RETYPE = "retype"
    KEY = "key"


class ColumnStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step. ``column`` is its name afterwards (of a dropped one: before; of ``key``: empty).

    ``was`` is the old name, of a rename. ``type`` is the logical type afterwards, of ``add``,
    ``widen`` and ``retype``. ``default`` is what rows that existed hold in an added column, None
    for NULL: digits for numbers, ISO 8601 (a space between date and time) for dates and
    timestamps (those of a zone in UTC, without saying so), ``true`` or ``false``, hex digits for
    binary, the text itself for strings.
    """

    kind: StepKind
    column: str = ""
    was: str = ""
    type: str = ""
    default: str | None = None


BETWEEN = "_tl_between_"
"""The prefix of the names that columns have between two renames of one event."""


class Origin(msgspec.Struct, frozen=True):
    """The origin of a column's values: the column ``was``, or (None) it is new, and rows that
    existed hold ``default``."""

    was: str | None
    default: str | None = None


def origins_after(columns: Iterable[str], steps: Iterable[ColumnStep]) -> dict[str, Origin]:
    """Return the columns that ``steps`` make of ``columns``, each with its origin."""
    found = {name: Origin(name) for name in columns}
    for step in steps:
        if step.kind is StepKind.ADD:
            found[step.column] = Origin(None, step.default)
        elif step.kind is StepKind.DROP:
            found.pop(step.column, None)
        elif step.kind is StepKind.RENAME and step.was in found:
            found[step.column] = found.pop(step.was)
    return found


def steps_to(columns: Iterable[str], origins: Mapping[str, Origin]) -> tuple[ColumnStep, ...]:
    """Return the drops, renames and adds that make ``origins`` of ``columns``."""
    kept = {origin.was for origin in origins.values()}
    moves = {
        origin.was: name
        for name, origin in origins.items()
        if origin.was is not None and origin.was != name
    }
    return (
        *(ColumnStep(StepKind.DROP, name) for name in columns if name not in kept),
        *renames_in_order(moves),
        *(
            ColumnStep(StepKind.ADD, name, default=origin.default)
            for name, origin in origins.items()
            if origin.was is None
        ),
    )


def at_once(steps: Iterable[ColumnStep]) -> tuple[ColumnStep, ...]:
    """Convert the steps so that all can be taken at the same time, by the names before: a column is
    renamed at most once, and no name in between is left."""
    others: list[ColumnStep] = []
    before: dict[str, str] = {}
    for step in steps:
        if step.kind is StepKind.RENAME:
            before[step.column] = before.pop(step.was, step.was)
        else:
            others.append(step)
    renames = [
        ColumnStep(StepKind.RENAME, name, was=was) for name, was in before.items() if name != was
    ]
    drops = [step for step in others if step.kind is StepKind.DROP]
    return (*drops, *renames, *(step for step in others if step.kind is not StepKind.DROP))


def renames_in_order(moves: Mapping[str, str]) -> Iterator[ColumnStep]:
    """Yield renames, each to a name that is free by then; a warehouse may ignore the case of names.

    ``moves``: name before → name after.
    """
    for was, name in _in_order(moves):
        yield ColumnStep(StepKind.RENAME, name, was=was)


def _in_order(moves: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    left, numbers = dict(moves), count(len(moves))
    while left:
        held: dict[str, set[str]] = {}
        for was in left:
            held.setdefault(was.lower(), set()).add(was)
        free = [was for was, name in left.items() if held.get(name.lower(), {was}) == {was}]
        for was in free:
            yield was, left.pop(was)
        if not free:
            was = next(iter(left))
            between = f"{BETWEEN}{next(numbers)}"
            yield was, between
            left[between] = left.pop(was)
