"""A random table whose columns change all the time, and what its log says of it.

It knows the truth: its rows, in its present columns. What it logs may lack columns that did not
change, and mixes in the rows of dumps, whole or partial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from tests.fixtures.parts import Emptied, Event, Row, Shaped, schema_of
from tideline.contract.schema import TableSchema
from tideline.contract.steps import ColumnStep, StepKind

TABLE = "public.evolving"
KEY = "id"
MOVES_MAX = 3
_WIDER = {"int16": "int32", "int32": "int64", "int64": "decimal(20,0)"}
_NAMES = ("a", "b", "B", "c d", "e.f", "g`h", "i", "select", "ü")
BIGQUERY_NAMES = ("a", "b", "c d", "e-f", "i", "select", "ü")
"""Those that BigQuery has columns of, none of which differs from another by case only."""
_IDS = range(1, 45)

Value = tuple[Any, str | None]
"""A column's value, and the text of one that its type cannot hold."""


@dataclass
class EvolvingSource:
    """``columns`` are those besides the key, by name; ``rows`` by id."""

    random: Random
    columns: dict[str, str] = field(default_factory=lambda: {"a": "string", "b": "int16"})
    rows: dict[int, dict[str, Value]] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    names: Sequence[str] = _NAMES
    """The names that columns may have."""

    @property
    def schema(self) -> TableSchema:
        return schema_of(TABLE, {KEY: "int64", **self.columns}, [KEY])

    def some(self, count: int) -> list[Event]:
        """``count`` changes, with changes of the columns among them."""
        found: list[Event] = []
        for _ in range(count):
            event = self.shape() if self.random.random() < 0.1 else self.change()
            found += [] if event is None else [event]
        return found

    def dump(self) -> Iterator[Row]:
        """All rows, as a dump has them."""
        for key in sorted(self.rows):
            yield self._row("r", key, self.rows[key])

    def lose(self) -> None:
        """Some rows go without a word in the log; a dump that begins now does not find them."""
        for key in sorted(self.rows):
            if self.random.random() < 0.15:
                del self.rows[key]

    def empty(self) -> Emptied:
        self.rows.clear()
        return Emptied(TABLE)

    # -- rows --------------------------------------------------------------------------------------

    def change(self) -> Row | None:
        choice, live = self.random.random(), sorted(self.rows)
        free = [key for key in _IDS if key not in self.rows]
        if (choice < 0.3 or not live) and free:
            key = self.random.choice(free)
            self.rows[key] = {name: self._value(kind) for name, kind in self.columns.items()}
            self.moves[key] = 0
            return self._row("c", key, self.rows[key])
        if not live:
            return None
        key = self.random.choice(live)
        if choice < 0.4:
            del self.rows[key]
            return self._row("d", key, {})
        if choice < 0.55:
            if not free or self.moves[key] >= MOVES_MAX:
                return None
            return self._move(key, self.random.choice(free))
        if choice < 0.9:
            return self._row("u", key, self._changed(key))
        if choice < 0.93:  # Changed without the log, and found by a dump.
            return self._row("r", key, self._changed(key))
        kept = {n: v for n, v in self.rows[key].items() if self.random.random() < 0.5}
        return self._row("r", key, kept)

    def _move(self, before: int, key: int) -> Row:
        carried = self._changed(before)
        self.rows[key] = self.rows.pop(before)
        self.moves[key] = self.moves.pop(before) + 1
        return self._row("u", key, carried, before={KEY: before})

    def _changed(self, key: int) -> dict[str, Value]:
        """Change some columns; what the log carries: those, and some of the others."""
        row = self.rows[key]
        changed = {
            n: self._value(kind) for n, kind in self.columns.items() if self.random.random() < 0.4
        }
        row.update(changed)
        return {n: v for n, v in row.items() if n in changed or self.random.random() < 0.5}

    def _value(self, kind: str) -> Value:
        if self.random.random() < 0.15:
            return None, None
        if kind == "timestamp":
            return None, self.random.choice(["infinity", "-infinity"])
        if kind == "string":
            return f"text {self.random.randint(0, 99)}", None
        bits = {"int16": 15, "int32": 31, "int64": 63}.get(kind, 64)
        number = self.random.randrange(2 ** self.random.randint(1, bits))
        return (number if kind.startswith("int") else Decimal(number)), None

    def _row(self, op: str, key: int, carried: dict[str, Value], *, before: Any = None) -> Row:
        return Row(
            TABLE,
            op,
            {KEY: key, **{name: value for name, (value, _) in carried.items()}},
            before=before,
            unchanged=() if op == "d" else tuple(n for n in self.columns if n not in carried),
            overflow={name: text for name, (_, text) in carried.items() if text is not None},
        )

    # -- columns -----------------------------------------------------------------------------------

    def shape(self) -> Shaped | None:
        """A change of the columns; all of its steps happen at once."""
        names, free = list(self.columns), self._free()
        choices = [self._add, self._add, self._widen]
        choices += [self._drop, self._rename, self._replace] if names else []
        choices += [self._swap, self._shift] if len(names) > 1 and free else []
        steps = self.random.choice(choices)()
        if not steps:
            return None
        self._take(steps)
        return Shaped(self.schema, tuple(steps))

    def _free(self) -> list[str]:
        taken = {name.lower() for name in self.columns}
        return [name for name in self.names if name.lower() not in taken]

    def _add(self, name: str = "") -> list[ColumnStep]:
        free = self._free()
        if not name and not free:
            return []
        kind = self.random.choice(["string", "int16", "int32", "timestamp"])
        default = {"string": "it's\\", "int16": "7", "int32": "-3"}.get(kind)
        if self.random.random() < 0.4:
            default = None
        named = name or self.random.choice(free)
        return [ColumnStep(StepKind.ADD, named, type=kind, default=default)]

    def _widen(self) -> list[ColumnStep]:
        narrow = [name for name, kind in self.columns.items() if kind in _WIDER]
        if not narrow:
            return []
        name = self.random.choice(narrow)
        return [ColumnStep(StepKind.WIDEN, name, type=_WIDER[self.columns[name]])]

    def _drop(self) -> list[ColumnStep]:
        return [ColumnStep(StepKind.DROP, self.random.choice(list(self.columns)))]

    def _replace(self) -> list[ColumnStep]:
        (dropped,) = self._drop()
        return [dropped, *self._add(dropped.column)]

    def _rename(self) -> list[ColumnStep]:
        was = self.random.choice(list(self.columns))
        cased = [n for n in self.names if n != was and n.lower() == was.lower()]
        new = self.random.choice([*self._free(), *cased, was])
        return [] if new == was else [ColumnStep(StepKind.RENAME, new, was=was)]

    def _swap(self) -> list[ColumnStep]:
        one, other = self.random.sample(list(self.columns), 2)
        return [
            ColumnStep(StepKind.RENAME, other, was=one),
            ColumnStep(StepKind.RENAME, one, was=other),
        ]

    def _shift(self) -> list[ColumnStep]:
        """One column takes another's name, which gets a new one."""
        one, other = self.random.sample(list(self.columns), 2)
        return [
            ColumnStep(StepKind.RENAME, other, was=one),
            ColumnStep(StepKind.RENAME, self.random.choice(self._free()), was=other),
        ]

    def _take(self, steps: list[ColumnStep]) -> None:
        dropped = {step.column for step in steps if step.kind is StepKind.DROP}
        renamed = {step.was: step.column for step in steps if step.kind is StepKind.RENAME}
        self.columns = {
            renamed.get(n, n): kind for n, kind in self.columns.items() if n not in dropped
        }
        for key, row in self.rows.items():
            self.rows[key] = {renamed.get(n, n): v for n, v in row.items() if n not in dropped}
        for step in steps:
            if step.kind is StepKind.WIDEN:
                self.columns[step.column] = step.type
                if step.type.startswith("decimal"):
                    for row in self.rows.values():
                        value, text = row[step.column]
                        row[step.column] = (None if value is None else Decimal(value), text)
            elif step.kind is StepKind.ADD:
                self.columns[step.column] = step.type
                for row in self.rows.values():
                    row[step.column] = (default_of(step), None)


def default_of(step: ColumnStep) -> Any:
    if step.default is None:
        return None
    return step.default if step.type == "string" else int(step.default)
