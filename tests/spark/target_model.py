"""A target, in plain Python: every event acts on it one after the other, as it would on a database.

It knows nothing of plans, folds, versions and MERGEs, so it says what they must come to, wherever
they are cut, in all modes that have rows of the source. Where the target does not follow the
source, it has the rules of docs/SCHEMA_CHANGES.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.fixtures.parts import Emptied, Event, Row, Shaped
from tests.spark.evolving_source import KEY, Value, default_of
from tideline.contract.modes import Mode
from tideline.contract.steps import ColumnStep, StepKind

NOTHING: Value = (None, None)
SEEN, UNTIL = "seen at", "until"
"""What a row is told of besides its columns."""
_BITS = {"int16": 15, "int32": 31, "int64": 63}


@dataclass
class Line:
    """A row of the target: what the source's row ``key`` held from sequence ``since`` on, until
    ``until`` (None: still), seen last at ``seq``. ``row`` has the source's columns by its names,
    whether the target has them or not; ``old`` those that only the target has, by its names."""

    key: int
    since: int
    seq: int
    row: dict[str, Value]
    old: dict[str, Value]
    until: int | None = None


@dataclass
class TargetModel:
    """``types`` has the source's columns by its names, whether the target has them or not: ``away``
    are those that it does not. ``kept`` are columns by the target's names, with the sequence since;
    ``carried``: those whose value a row has as long as it lives; ``narrow``: types that stay."""

    ignored: frozenset[StepKind] = frozenset()
    mode: Mode = Mode.CURRENT
    types: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    away: set[str] = field(default_factory=set)
    kept: dict[str, int] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)
    narrow: dict[str, str] = field(default_factory=dict)

    def take(self, seq: int, event: Event) -> None:
        if isinstance(event, Row):
            self._change(seq, event)
        elif isinstance(event, Emptied):
            self.end(seq - 1, seq)
        else:
            self._shape(seq, event)

    def end(self, delete_before: int, seq: int) -> None:
        """Rows that were not seen after ``delete_before`` are gone: since ``seq``, it was found."""
        for line in list(self.lines):
            if line.until is None and line.seq <= delete_before:
                self._close(line, seq)

    @property
    def rows(self) -> dict[int, dict[str, Value]]:
        """What the source should have now."""
        return {line.key: line.row for line in self.lines if line.until is None}

    def content(self) -> dict[Any, dict[str, Value]]:
        """By id (of a history: and the sequence since) what there is in the target's columns."""
        shown = [name for name in self.types if name not in self.away]
        content = {}
        for line in self.lines:
            values = {n: self._fitting(n, line.row[n]) for n in shown} | line.old
            seq = line.seq if self.mode is Mode.HISTORY else line.until or line.seq
            marks: dict[str, Value] = {SEEN: (seq, None), UNTIL: (line.until, None)}
            at = (line.key, line.since) if self.mode is Mode.HISTORY else line.key
            assert at not in content
            content[at] = _filled(values | marks)
        return content

    # -- rows --------------------------------------------------------------------------------------

    def _change(self, seq: int, change: Row) -> None:
        key = change.values[KEY]
        was = key if change.before is None else change.before[KEY]
        held = self._open(was)
        carried = [name for name in self.types if name not in change.unchanged]
        reported = {n: (change.values.get(n), change.overflow.get(n)) for n in carried}
        if change.op == "r" and held is not None and self._confirms(held, reported):
            held.seq = seq
            held.row |= reported
            return
        for line in (held, self._open(key)):
            if line is not None:
                self._close(line, seq)
        if change.op == "d":
            return
        row, old = dict.fromkeys(self.types, NOTHING), {}
        if held is not None and change.op != "c":
            row = held.row
            old = {name: value for name, value in held.old.items() if name in self.carried}
        if self.mode is not Mode.HISTORY:
            self.lines = [line for line in self.lines if line.key != key]
        self.lines.append(Line(key, seq, seq, {**row, **reported}, old))

    def _open(self, key: int) -> Line | None:
        return next((one for one in self.lines if one.key == key and one.until is None), None)

    def _confirms(self, held: Line, reported: dict[str, Value]) -> bool:
        return all(
            self._fitting(name, value) == self._fitting(name, held.row[name])
            for name, value in reported.items()
            if name not in self.away
        )

    def _close(self, line: Line, seq: int) -> None:
        line.until = seq if line.until is None else line.until
        if self.mode is Mode.CURRENT:
            self.lines = [one for one in self.lines if one is not line]

    def _fitting(self, name: str, value: Value) -> Value:
        """A column that keeps its type holds what fits; the rest is text."""
        bits = _BITS.get(self.narrow.get(name, ""))
        number = value[0]
        if bits is None or number is None or -(2**bits) <= number < 2**bits:
            return value
        return None, str(number)

    # -- columns -----------------------------------------------------------------------------------

    def _shape(self, seq: int, event: Shaped) -> None:
        steps = {kind: [s for s in event.steps if s.kind is kind] for kind in StepKind}
        for step in steps[StepKind.DROP]:
            self._drop(seq, step.column)
        self._rename(seq, {step.was: step.column for step in steps[StepKind.RENAME]})
        for step in steps[StepKind.WIDEN]:
            if StepKind.WIDEN in self.ignored and step.column not in self.away:
                self.narrow.setdefault(step.column, self.types[step.column])
            self.types[step.column] = step.type
        for step in steps[StepKind.ADD]:
            self._add(step)
        self.types = self.types or {
            c.name: c.type for c in event.schema.columns if c.name not in event.schema.key
        }

    def _drop(self, seq: int, name: str) -> None:
        if name in self.away:
            self.away.discard(name)
        elif StepKind.DROP in self.ignored or self.mode is Mode.HISTORY:
            self._part(seq, name, carried=StepKind.DROP in self.ignored)
        self._forget([name])

    def _rename(self, seq: int, renamed: dict[str, str]) -> None:
        stays = StepKind.RENAME in self.ignored
        away, narrow = self.away & set(renamed), {n: self.narrow.get(n) for n in renamed}
        for was in renamed:
            if stays and was not in away:
                self._part(seq, was, carried=True)
        moved = {new: (self.types[was], was) for was, new in renamed.items()}
        values = [{n: line.row[w] for n, (_, w) in moved.items()} for line in self.lines]
        self._forget(renamed)
        self.away -= away
        for was, new in renamed.items():
            self.types[new] = moved[new][0]
            if was in away or (stays and StepKind.ADD in self.ignored):
                self.away.add(new)
                continue
            self._clear(new)
            if narrow[was] is not None:
                self.narrow[new] = str(narrow[was])
        for line, taken in zip(self.lines, values, strict=True):
            line.row.update(taken)

    def _add(self, step: ColumnStep) -> None:
        self.types[step.column] = step.type
        for line in self.lines:
            past = self.mode is Mode.HISTORY and line.until is not None
            line.row[step.column] = NOTHING if past else (default_of(step), None)
        if StepKind.ADD in self.ignored:
            self.away.add(step.column)
        else:
            self._clear(step.column)

    def _part(self, seq: int, name: str, *, carried: bool) -> None:
        """The target keeps the column, the source has it no more."""
        self.kept[name] = seq
        self.carried |= {name} if carried else set()
        for line in self.lines:
            line.old[name] = self._fitting(name, line.row[name])

    def _clear(self, name: str) -> None:
        """What the target kept under a name that the source uses again gets another name."""
        for held in [kept for kept in self.kept if kept.lower() == name.lower()]:
            aside = f"{held}_until_{self.kept.pop(held)}"
            self.kept[aside] = 0
            if held in self.carried:
                self.carried ^= {held, aside}
            for line in self.lines:
                if held in line.old:
                    line.old[aside] = line.old.pop(held)

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.types.pop(name)
            self.narrow.pop(name, None)
            for line in self.lines:
                line.row.pop(name)


def _filled(row: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in row.items() if value != NOTHING}


def in_target(rows: list[dict[str, Any]], mode: Mode) -> dict[Any, dict[str, Value]]:
    """A real target's rows as `TargetModel.content` has them."""
    found: dict[Any, dict[str, Value]] = {}
    for row in rows:
        at = (row[KEY], row["_tl_valid_from_seq"]) if mode is Mode.HISTORY else row[KEY]
        assert at not in found, "a row is there twice"
        until = row.get("_tl_valid_to_seq", row.get("_tl_deleted_seq"))
        found[at] = shown(row) | _filled({SEEN: (row["_tl_seq"], None), UNTIL: (until, None)})
    return found


def shown(row: dict[str, Any]) -> dict[str, Value]:
    """A row's own columns, as far as they hold anything; pending ones are said so."""
    texts = row["_tl_overflow"] or {}
    names = {name for name in row if name != KEY and not name.startswith("_tl_")}
    found: dict[str, Value] = {n: (_plain(row.get(n)), texts.get(n)) for n in names | set(texts)}
    found |= dict.fromkeys(row["_tl_pending"] or (), ("pending", None))
    return _filled(found)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
