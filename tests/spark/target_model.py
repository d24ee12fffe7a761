"""A target, in plain Python: every event acts on it one after the other, as it would on a database.

It knows nothing of plans, folds and MERGEs, so it says what they must come to, wherever they are
cut. Where the target does not follow the source, it has the rules of docs/SCHEMA_CHANGES.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.fixtures.parts import Emptied, Event, Row, Shaped
from tests.spark.evolving_source import KEY, Value, default_of
from tideline.contract.steps import ColumnStep, StepKind

NOTHING: Value = (None, None)
_BITS = {"int16": 15, "int32": 31, "int64": 63}


@dataclass
class TargetModel:
    """``types`` and ``rows`` have the source's columns by its names, whether the target has them or
    not: ``away`` are those that it does not. ``kept`` are columns by the target's names, with their
    values in ``old`` and the sequence since; ``narrow``: types that stay."""

    ignored: frozenset[StepKind] = frozenset()
    types: dict[str, str] = field(default_factory=dict)
    rows: dict[int, dict[str, Value]] = field(default_factory=dict)
    seqs: dict[int, int] = field(default_factory=dict)
    old: dict[int, dict[str, Value]] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    kept: dict[str, int] = field(default_factory=dict)
    narrow: dict[str, str] = field(default_factory=dict)

    def take(self, seq: int, event: Event) -> None:
        if isinstance(event, Row):
            self._change(seq, event)
        elif isinstance(event, Emptied):
            self._keep_only(set())
        else:
            self._shape(seq, event)

    def end(self, floor: int) -> None:
        """A full dump ended: rows that it and later changes did not bring are gone."""
        self._keep_only({key for key, seq in self.seqs.items() if seq > floor})

    def content(self) -> dict[int, dict[str, Value]]:
        """By id the target's columns that hold anything."""
        shown = [name for name in self.types if name not in self.away]
        return {
            key: _filled({n: self._fitting(n, row[n]) for n in shown} | self.old[key])
            for key, row in self.rows.items()
        }

    # -- rows --------------------------------------------------------------------------------------

    def _change(self, seq: int, change: Row) -> None:
        key = change.values[KEY]
        was = key if change.before is None else change.before[KEY]
        row, old = self.rows.pop(was, None), self.old.pop(was, {})
        self.seqs.pop(was, None)
        if change.op == "d":
            return
        base = dict.fromkeys(self.types, NOTHING) if row is None or change.op == "c" else row
        self.old[key] = {} if change.op == "c" else old
        carried = [name for name in self.types if name not in change.unchanged]
        told = {n: (change.values.get(n), change.overflow.get(n)) for n in carried}
        self.rows[key], self.seqs[key] = {**base, **told}, seq

    def _keep_only(self, keys: set[int]) -> None:
        for each in (self.rows, self.old, self.seqs):
            for key in set(each) - keys:
                del each[key]

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
        elif StepKind.DROP in self.ignored:
            self._part(seq, name)
        self._forget([name])

    def _rename(self, seq: int, renamed: dict[str, str]) -> None:
        stays = StepKind.RENAME in self.ignored
        away, narrow = self.away & set(renamed), {n: self.narrow.get(n) for n in renamed}
        for was in renamed:
            if stays and was not in away:
                self._part(seq, was)
        moved = {new: (self.types[was], was) for was, new in renamed.items()}
        values = {k: {n: row[w] for n, (_, w) in moved.items()} for k, row in self.rows.items()}
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
        for key, row in self.rows.items():
            row.update(values[key])

    def _add(self, step: ColumnStep) -> None:
        self.types[step.column] = step.type
        for row in self.rows.values():
            row[step.column] = (default_of(step), None)
        if StepKind.ADD in self.ignored:
            self.away.add(step.column)
        else:
            self._clear(step.column)

    def _part(self, seq: int, name: str) -> None:
        """The target keeps the column, the source has it no more."""
        self.kept[name] = seq
        for key, row in self.rows.items():
            self.old[key][name] = self._fitting(name, row[name])

    def _clear(self, name: str) -> None:
        """What the target kept under a name that the source uses again gets another name."""
        for held in [kept for kept in self.kept if kept.lower() == name.lower()]:
            aside = f"{held}_until_{self.kept.pop(held)}"
            self.kept[aside] = 0
            for old in self.old.values():
                if held in old:
                    old[aside] = old.pop(held)

    def _forget(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.types.pop(name)
            self.narrow.pop(name, None)
            for row in self.rows.values():
                row.pop(name)


def _filled(row: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in row.items() if value != NOTHING}


def shown(row: dict[str, Any]) -> dict[str, Value]:
    """A row of a real target as `TargetModel.content` has it; pending columns are said so."""
    texts = row["_tl_overflow"] or {}
    names = {name for name in row if name != KEY and not name.startswith("_tl_")}
    found: dict[str, Value] = {n: (_plain(row[n]), texts.get(n)) for n in names | set(texts)}
    found |= dict.fromkeys(row["_tl_pending"] or (), ("pending", None))
    return _filled(found)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
