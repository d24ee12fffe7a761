"""Traces columns across a change of a table's schema, and judges what that does to rows.

The origin of columns is certain only by the source's word: the numbers of its columns (PostgreSQL),
or statements of the log that were understood as a whole (MySQL, MariaDB). Else a column is taken
for the one that had its name, one with another name for a new one, and existing rows are
in doubt.

**Numbers.** A number is never given twice. The catalog was read at another moment than that at
which the change stands in the log: it may include further changes, which the log has not shown yet.
If all columns have the same names and types there and then, they may still be others: one may have
been replaced since. But then a column that was known is gone and another one is new; or a number
was given in between to a column that is there no longer. So the catalog is believed where all of
its columns were known before (columns were renamed or dropped, and none was added), or where they
are just those that were known and those with a number given since (columns were renamed or added,
and none was dropped, or was a generated one, which is not seen).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tideline.contract.open_state import ColumnNumbers, TableState
from tideline.contract.schema import (
    ChangeKind,
    Column,
    SchemaChange,
    TableSchema,
    Verdict,
    difference,
)
from tideline.contract.steps import ColumnStep, Origin, StepKind, origins_after, steps_to
from tideline.contract.types import Kind
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.tables.drift import stored_alike

_WHOLE_NUMBER = re.compile(r"(?:tiny|small|medium|big)?int(?: unsigned)?")
_LENGTH = re.compile(r"(varchar|varbinary)\(([0-9]+)\)")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The origin of each column of a schema, in its order.

    ``exact``: where types differ, values that both can hold were kept. ``unknown`` are new columns
    whose values in existing rows are not known.
    """

    origins: Mapping[str, Origin]
    certain: bool
    exact: bool = False
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JudgedChange:
    """A change of schema, and its effect on existing rows; ``changes`` in words."""

    verdict: Verdict
    steps: tuple[ColumnStep, ...]
    changes: tuple[str, ...]


def by_name(old: TableSchema, new: TableSchema) -> Lineage:
    """Match columns by name, when nothing is certain."""
    known = set(old.column_names)
    origins = {name: Origin(name if name in known else None) for name in new.column_names}
    return Lineage(origins, certain=False)


def by_statement(
    old: TableSchema, new: TableSchema, observed_steps: tuple[ColumnStep, ...] | None
) -> Lineage | None:
    """Match columns by what statements did to those of ``old``; None unless ``new`` has just these.

    A statement has texts: where these became bytes by the table's own charset, the bytes are not
    known.
    """
    if observed_steps is None:
        return None
    origins = origins_after(old.column_names, observed_steps)
    if origins.keys() != set(new.column_names):
        return None
    found = {name: origins[name] for name in new.column_names}
    unknown = frozenset(
        name
        for name, origin in found.items()
        if origin.default is not None and new.column(name).type == Kind.BINARY
    )
    found |= dict.fromkeys(unknown, Origin(None))
    return Lineage(found, certain=True, exact=True, unknown=unknown)


def by_numbers(
    old: TableSchema, new: TableSchema, state: TableState, facts: TableFacts | None
) -> Lineage | None:
    """Match the columns of ``new`` by the catalog's numbers; None where that leaves a doubt.

    Where rows were rewritten in the meantime, the catalog has forgotten what they held in new
    columns.
    """
    before = state.numbers
    if facts is None or before is None or facts.numbers is None or facts.schema != new:
        return None
    if not follows(before, facts.numbers) or len(before.columns) != len(old.columns):
        return None
    names = dict(zip(before.columns, old.column_names, strict=True))
    numbered = zip(new.column_names, facts.numbers.columns, strict=True)
    origins = {name: Origin(names.get(number)) for name, number in numbered}
    added = {name for name, origin in origins.items() if origin.was is None}
    for name in added & facts.defaults.keys():
        origins[name] = Origin(None, facts.defaults[name])
    unknown = (added & set(facts.backfilled)) - facts.defaults.keys()
    if not stored_alike(state.catalog, facts):
        unknown = added
    return Lineage(origins, certain=True, unknown=frozenset(unknown))


def follows(before: ColumnNumbers, now: ColumnNumbers) -> bool:
    """Return whether ``now`` must be the columns that the same table had under these names."""
    known, found = set(before.columns), set(now.columns)
    given = set(range(before.last + 1, now.last + 1))
    return before.oid == now.oid and (found <= known or found == known | given)


def judge(old: TableSchema, new: TableSchema, lineage: Lineage) -> JudgedChange:
    """Return the steps from ``old`` to ``new``, in words too, and the gravest verdict over them."""
    kept = _kept(old, lineage)
    news = [column for column in new.columns if lineage.origins[column.name].was is None]
    now = TableSchema(new.table, tuple(c for c in new.columns if c not in news), new.key)
    moves = steps_to(old.column_names, lineage.origins)
    types = [change for change in difference(kept, now) if change.kind is not ChangeKind.ADD]
    steps = [step for step in moves if step.kind is not StepKind.ADD]
    for kind in (StepKind.WIDEN, StepKind.RETYPE):
        steps += [_typed(kind, c.column, new) for c in types if c.kind.value == kind.value]
    steps += [_added(step, new) for step in moves if step.kind is StepKind.ADD]
    steps += [ColumnStep(StepKind.KEY) for c in types if c.kind is ChangeKind.KEY]
    gone = [column for column in old.columns if column.name not in _sources(lineage)]
    words = (
        *(str(SchemaChange(ChangeKind.DROP, c.name, before=c.source_type)) for c in gone),
        *(f"rename {was} → {name}" for name, was in _renamed(lineage)),
        *(str(SchemaChange(ChangeKind.ADD, c.name, after=c.source_type)) for c in news),
        *(str(change) for change in types),
    )
    return JudgedChange(_verdict(types, news, gone, lineage), tuple(steps), words)


def _verdict(
    types: list[SchemaChange], news: list[Column], gone: list[Column], lineage: Lineage
) -> Verdict:
    """Judge a change.

    A nullable column that is added without a default is neutral: existing rows hold NULL at the
    source too. Where nothing is certain, the catalog's comparison finds a default.
    """
    if any(change.kind in (ChangeKind.RETYPE, ChangeKind.KEY) for change in types):
        return Verdict.INCOMPATIBLE
    doubts = [not _is_exact(change, lineage) for change in types]
    if lineage.certain:
        doubts += [column.name in lineage.unknown for column in news]
    else:
        doubts += [not column.nullable for column in news] + [True for _ in gone]
    return Verdict.DOUBTFUL if any(doubts) else Verdict.NEUTRAL


def _is_exact(change: SchemaChange, lineage: Lineage) -> bool:
    """Return whether values are what they were, as far as this change of a type goes."""
    if change.kind in (ChangeKind.WIDEN, ChangeKind.SOURCE_TYPE):
        return lineage.exact and _is_wider(change.before, change.after)
    return True


def _is_wider(before: str, after: str) -> bool:
    """Return whether values are also written as they were, in the source's words for types.

    Columns that are generated from them stay the same then, too. Digits of fractions are written
    out.
    """
    if _WHOLE_NUMBER.fullmatch(before) and _WHOLE_NUMBER.fullmatch(after):
        return True
    old, new = _LENGTH.fullmatch(before), _LENGTH.fullmatch(after)
    if old is None or new is None or old[1] != new[1]:
        return False
    return int(new[2]) >= int(old[2])


def _kept(old: TableSchema, lineage: Lineage) -> TableSchema:
    """Return the columns of ``old`` that are still there, by their names now; the key by these
    too."""
    now = {origin.was: name for name, origin in lineage.origins.items() if origin.was is not None}
    columns = tuple(
        Column(now[c.name], c.type, c.source_type, c.nullable) for c in old.columns if c.name in now
    )
    key = tuple(now.get(name, f"{name} (dropped)") for name in old.key)
    return TableSchema(old.table, columns, key)


def _typed(kind: StepKind, name: str, new: TableSchema) -> ColumnStep:
    return ColumnStep(kind, name, type=new.column(name).type)


def _added(step: ColumnStep, new: TableSchema) -> ColumnStep:
    name = step.column
    return ColumnStep(StepKind.ADD, name, type=new.column(name).type, default=step.default)


def _sources(lineage: Lineage) -> set[str]:
    return {origin.was for origin in lineage.origins.values() if origin.was is not None}


def _renamed(lineage: Lineage) -> list[tuple[str, str]]:
    return [
        (name, origin.was)
        for name, origin in lineage.origins.items()
        if origin.was is not None and origin.was != name
    ]
