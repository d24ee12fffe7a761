"""Follows columns through the steps of schema changes. Pure: decides, and changes nothing.

Two questions. Where does a column that the source has at a plan's end come from, for a row that was
written some steps before (`ancestors`)? And what is to be done to a target's columns, so that it
takes the steps that its owner wants followed, and stays apart where the owner does not (`follow`)?

A target's names are the source's, except for what stays apart: `TargetColumns` carries that from
one plan to the next. It lies in the target's own log, in the commit that changes its columns, so
that a run that is killed anywhere finds out what it has done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.steps import ColumnStep, StepKind

COLUMNS_PROPERTY = "tideline.columns"
"""The property in which a target records the state of its columns (`TargetColumns`)."""

_PARTED = frozenset({StepKind.RETYPE, StepKind.KEY})
"""Steps that no target follows: a new generation begins there."""
_ARCHIVES = frozenset({Mode.HISTORY, Mode.APPEND})
"""Modes whose older rows are the past: what the source does to its columns does not change them."""


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The origin of a column's values, in rows that are older than some steps.

    ``column``: the name that it had then; None: it was added since, and such rows hold ``default``
    (as `ColumnStep` writes it, of the logical type ``type``). ``copied``: the values of ``column``
    are another column's too. ``like``: one without values has the type that this one had.
    """

    column: str | None = None
    default: str | None = None
    type: str = ""
    copied: bool = False
    like: str | None = None


def ancestors(names: Iterable[str], changes: Sequence[PlannedChange]) -> dict[str, Ancestor]:
    """Return, for rows that had the columns ``names``, each column's values after ``changes``.

    A column that came through changes without steps is missing; one that they removed is still
    there.
    """
    found = {name: Ancestor(name) for name in names}
    for change in changes:
        at = _Steps.of(change)
        found = {at.renamed.get(n, n): one for n, one in found.items() if n not in at.dropped}
        found |= {step.column: _added(step) for step in at.added}
    return found


def _added(step: ColumnStep) -> Ancestor:
    return Ancestor(None, step.default, step.type)


@dataclass(frozen=True, slots=True)
class _Steps:
    """A change's steps by kind: all happen at once. ``renamed``: name before → name after."""

    dropped: frozenset[str]
    renamed: Mapping[str, str]
    widened: tuple[str, ...]
    added: tuple[ColumnStep, ...]

    @classmethod
    def of(cls, change: PlannedChange) -> _Steps:
        def those(kind: StepKind) -> tuple[ColumnStep, ...]:
            return tuple(step for step in change.steps if step.kind is kind)

        return cls(
            dropped=frozenset(step.column for step in those(StepKind.DROP)),
            renamed={step.was: step.column for step in those(StepKind.RENAME)},
            widened=tuple(step.column for step in those(StepKind.WIDEN)),
            added=those(StepKind.ADD),
        )

    @property
    def before(self) -> dict[str, str]:
        """Renamed columns by their names after."""
        return {name: was for was, name in self.renamed.items()}


class RetainedColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of the target that the source has no longer: its values stay.

    Since sequence ``seq``, before which the source called it ``column``. ``carried``: a row that is
    written again keeps its value; else only what was written before ``seq`` has one.
    """

    seq: int
    column: str
    carried: bool = True


class Refill(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values to write into every row of a target once its columns are changed.

    ``fills``: column → logical type and default; ``copies``: column → column; ``names``: a column's
    name before, and the names that it has now, for the names that lie in rows.
    """

    fills: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    copies: Mapping[str, str] = msgspec.field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fills or self.copies or self.names)


class TargetColumns(msgspec.Struct, frozen=True, omit_defaults=True, rename={"retained": "kept"}):
    """The state of a target's columns: the steps up to sequence ``seq`` are taken.

    ``away``: columns of the source that it does not have; ``retained``: columns that only it has,
    with values; ``left``: such columns without values; ``narrow``: columns that keep a type which
    not every value fits. ``refill`` is due after the steps of ``seq``; whether it is done is a
    transaction version.
    """

    seq: int = 0
    away: tuple[str, ...] = ()
    retained: Mapping[str, RetainedColumn] = msgspec.field(default_factory=dict)
    left: tuple[str, ...] = ()
    narrow: tuple[str, ...] = ()
    refill: Refill = Refill()

    @classmethod
    def parse(cls, text: str | None) -> TargetColumns:
        """Parse the target's property; a target without it has no column apart."""
        try:
            return cls() if text is None else _DECODER.decode(text)
        except msgspec.MsgspecError:
            raise CorruptData(
                "the warehouse's table does not say how its columns stand",
                hint="someone changed its property tideline.columns: `tideline rebuild` it",
            ) from None

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_DECODER = msgspec.json.Decoder(TargetColumns)
AS_THE_SOURCE = TargetColumns()


@dataclass(frozen=True, slots=True)
class Followed:
    """The result of `follow`: the state of the columns afterwards, and what each one was.

    ``ancestors`` has every column of the target, by its name afterwards.
    """

    columns: TargetColumns
    ancestors: Mapping[str, Ancestor]

    @property
    def moves(self) -> bool:
        """Return whether a column that exists is renamed, dropped or emptied."""
        return any(name not in now for name, now in self.columns.refill.names.items())


def follow(present: Sequence[str], stands: TargetColumns, plan: TablePlan) -> Followed:
    """Carry the plan's steps that are not taken yet over to a target with columns ``present``.

    Steps of kinds in ``plan.ignored`` are not followed, unless they concern a key column. Raises
    Misconfigured where a column of someone else has the name of one that is to be added.
    """
    state = _State.begin(present, stands, plan)
    for change in plan.changes:
        if change.seq > stands.seq:
            state.take(change)
    return state.end()


@dataclass(slots=True)
class _State:
    """A target's columns while the steps are taken. ``keys``: those of the key after a change."""

    plan: TablePlan
    present: Sequence[str]
    ancestors: dict[str, Ancestor]
    away: set[str]
    retained: dict[str, RetainedColumn]
    left: set[str]
    narrow: set[str]
    keys: Mapping[int, frozenset[str]]
    seq: int

    @classmethod
    def begin(cls, present: Sequence[str], stands: TargetColumns, plan: TablePlan) -> _State:
        known = {*stands.retained, *names_before(plan)}
        dropped = {name for name in plan.dropped if name in present and name not in known}
        return cls(
            plan=plan,
            present=present,
            ancestors={name: Ancestor(name) for name in present},
            away=set(stands.away),
            retained=dict(stands.retained),
            left={*stands.left, *dropped},
            narrow=set(stands.narrow),
            keys=_keys(plan),
            seq=stands.seq,
        )

    def take(self, change: PlannedChange) -> None:
        parted = [step.kind.value for step in change.steps if step.kind in _PARTED]
        if parted:
            raise InvariantBroken(
                f"the plan of {self.plan.table} crosses a {parted[0]} at {change.seq}"
            )
        self.seq = change.seq
        steps = _Steps.of(change)
        for name in sorted(steps.dropped):
            self._drop(name, ignored=self._ignores(StepKind.DROP, name))
        self._rename(steps.renamed)
        for name in steps.widened:
            if name not in self.away and self._ignores(StepKind.WIDEN, name):
                self.narrow.add(name)
        for step in steps.added:
            self._add(step.column, _added(step))

    def end(self) -> Followed:
        now: dict[str, list[str]] = {name: [] for name in self.present}
        for name, one in self.ancestors.items():
            if one.column is not None:
                now[one.column].append(name)
        fills = {
            name: (one.type, one.default)
            for name, one in self.ancestors.items()
            if one.column is None and one.default is not None
        }
        holders = {one.column: name for name, one in self.ancestors.items() if not one.copied}
        refill = Refill(
            fills={} if self.plan.mode is Mode.APPEND else fills,
            copies={
                name: holders[one.column] for name, one in self.ancestors.items() if one.copied
            },
            names={name: tuple(found) for name, found in now.items() if found != [name]},
        )
        columns = TargetColumns(
            seq=self.seq,
            away=tuple(sorted(self.away)),
            retained={name: self.retained[name] for name in sorted(self.retained)},
            left=tuple(sorted(self.left)),
            narrow=tuple(sorted(self.narrow)),
            refill=refill,
        )
        return Followed(columns, dict(self.ancestors))

    def _ignores(self, kind: StepKind, name: str) -> bool:
        return kind in self.plan.ignored and name not in self.keys[self.seq]

    def _add(self, name: str, ancestor: Ancestor) -> None:
        if self._ignores(StepKind.ADD, name):
            self.away.add(name)
            return
        self._make_room(name, ())
        self.ancestors[name] = ancestor

    def _drop(self, name: str, *, ignored: bool) -> None:
        if name in self.away:
            self.away.discard(name)
            return
        held = self.ancestors.get(name)
        if held is None:
            return
        if ignored or self.plan.mode in _ARCHIVES:
            self.retained[name] = RetainedColumn(self.seq, name, carried=self._carries(ignored))
            return
        self.narrow.discard(name)
        if self.plan.drop_columns:
            del self.ancestors[name]
        elif held.column is None and held.like is None:
            del self.ancestors[name]  # It came in this plan too, and was never there.
        else:
            self.ancestors[name] = Ancestor(None, like=held.column or held.like)
            self.left.add(name)

    def _rename(self, renamed: Mapping[str, str]) -> None:
        away = {was: name for was, name in renamed.items() if was in self.away}
        live = {was: n for was, n in renamed.items() if was in self.ancestors and was not in away}
        new = {w: n for w, n in live.items() if self._ignores(StepKind.RENAME, n)}
        moved = {was: name for was, name in live.items() if was not in new}
        self.away = {away.get(name, name) for name in self.away}
        copies = {name: _copy(self.ancestors[was]) for was, name in new.items()}
        narrowed = {name for was, name in live.items() if was in self.narrow}
        self.narrow -= moved.keys()
        self.retained |= {
            was: RetainedColumn(self.seq, was, carried=self._carries(True)) for was in new
        }
        for name in moved.values():
            self._make_room(name, moved)
        self.ancestors = {moved.get(held, held): one for held, one in self.ancestors.items()}
        for name, ancestor in copies.items():
            self._add(name, ancestor)
        self.narrow |= narrowed & self.ancestors.keys()

    def _carries(self, ignored: bool) -> bool:
        """Return whether a row that is written again keeps a value that the source no longer has:
        the row has it as long as it lives. A log of changes has no rows that are written again."""
        return ignored and self.plan.mode is not Mode.APPEND

    def _make_room(self, name: str, leaving: Iterable[str]) -> None:
        """Free a name of columns that are not ``leaving`` it by themselves; targets do not
        distinguish names by case."""
        alike = [held for held in self.ancestors if held.lower() == name.lower()]
        for held in sorted(set(alike) - set(leaving)):
            if held in self.retained:
                aside = _unused(f"{held}_until_{self.retained[held].seq}", self.ancestors)
                self.ancestors = {
                    aside if h == held else h: one for h, one in self.ancestors.items()
                }
                self.retained[aside] = self.retained.pop(held)
                if held in self.narrow:
                    self.narrow ^= {held, aside}
            elif held in self.left:
                del self.ancestors[held]
                self.left.discard(held)
            elif held == name:
                raise Misconfigured(
                    f"column {name!r} came at {self.seq}, and someone else has added a column of"
                    f" that name to the warehouse's table of {self.plan.table}",
                    hint="rename or drop that column in the warehouse's table, and merge again",
                )


def _copy(held: Ancestor) -> Ancestor:
    return held if held.column is None else replace(held, copied=True)


def filled_since(plan: TablePlan, stands: TargetColumns) -> dict[str, int]:
    """Return the target's columns that the plan adds with a default, and the sequence of each.

    ``stands``: the state of its columns at the plan's end.
    """
    added_at: dict[str, int] = {}
    dropped_at: dict[int, dict[str, int]] = {}
    for change in plan.changes:
        dropped_at[change.seq] = added_at
        at = _Steps.of(change)
        added_at = {at.renamed.get(n, n): seq for n, seq in added_at.items() if n not in at.dropped}
        added_at |= {step.column: change.seq for step in at.added if step.default is not None}
    found = {name: seq for name, seq in added_at.items() if name not in stands.away}
    for name, retained in stands.retained.items():
        seq = dropped_at.get(retained.seq, {}).get(retained.column)
        if seq is not None:
            found[name] = seq
    return found


def names_before(plan: TablePlan) -> set[str]:
    """Return the columns that the source had before the plan's changes, as far as the steps
    show."""
    names = set(plan.schema.column_names)
    for change in reversed(plan.changes):
        steps = _Steps.of(change)
        names -= {step.column for step in steps.added}
        names = {steps.before.get(name, name) for name in names} | steps.dropped
    return names


def _keys(plan: TablePlan) -> dict[int, frozenset[str]]:
    """Return by a change's sequence the columns of the plan's key, by their names after it."""
    names, found = frozenset(plan.schema.key), {}
    for change in reversed(plan.changes):
        found[change.seq] = names
        before = _Steps.of(change).before
        names = frozenset(before.get(name, name) for name in names)
    return found


def _unused(name: str, taken: Iterable[str]) -> str:
    folded = {one.lower() for one in taken}
    while name.lower() in folded:
        name += "_"
    return name
