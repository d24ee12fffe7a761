"""Columns of the simulated tables that come, go and change their names.

A value names the column that it was written to, by the number that the source gave it: ``c7.…``. So
what a row holds can be judged without names, over any number of renames; whether each value also
lies under the right name is judged in the end, when no change of columns is in progress.

Columns with even numbers are *mortal*: only these are dropped, and what is in them is no part of a
row's version. Existing rows hold the default of a column that is added with one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from devtools.simulation.tables import BASE, DEFAULT, Form, Row
from tideline.contract.schema import Column, TableSchema
from tideline.contract.steps import ColumnStep, StepKind

_NAMES = ("north", "east", "south", "west")
_COLUMNS_MAX = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """The effect of one statement on columns, all at once.

    ``renames``: name before → name after. ``adds``: name → whether it has a default.
    """

    drops: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    adds: Mapping[str, bool] = field(default_factory=dict)

    @property
    def steps(self) -> tuple[ColumnStep, ...]:
        """Return the steps without the defaults of what is added; see `altered`."""
        return (
            *(ColumnStep(StepKind.DROP, name) for name in self.drops),
            *(ColumnStep(StepKind.RENAME, name, was=was) for was, name in self.renames.items()),
            *(ColumnStep(StepKind.ADD, name) for name in self.adds),
        )

    @property
    def words(self) -> str:
        return ", ".join(f"{step.kind.value} {step.was or step.column}" for step in self.steps)


def draw_addition(form: Form, own: random.Random) -> Alteration:
    """Draw one more column, or none where there are enough."""
    free = [name for name in _NAMES if name not in form.schema.column_names]
    if len(_extra(form)) >= _COLUMNS_MAX:
        return Alteration()
    return Alteration(adds={own.choice(free): own.random() < 0.6})


def draw_alteration(form: Form, own: random.Random) -> Alteration:
    """Draw an addition, a rename, a swap of names, a drop, or a column replaced by another of its
    name."""
    extra = _extra(form)
    if len(extra) < _COLUMNS_MAX and own.random() < 0.4:
        return draw_addition(form, own)
    free = [name for name in _NAMES if name not in extra]
    mortal = [name for name in extra if is_mortal(form.number(name))]
    draw = own.random()
    if mortal and draw < 0.2:
        name = own.choice(mortal)
        return Alteration(drops=(name,), adds={name: own.random() < 0.5})
    if mortal and draw < 0.5:
        return Alteration(drops=(own.choice(mortal),))
    if len(extra) > 1 and draw < 0.7:
        one, other = own.sample(extra, 2)
        return Alteration(renames={one: other, other: one})
    if extra:
        return Alteration(renames={own.choice(extra): own.choice(free)})
    return draw_addition(form, own)


def altered(form: Form, what: Alteration) -> Form:
    """Return the form afterwards.

    Its ``filled`` has the defaults that the source keeps for new columns.
    """
    pairs = zip(form.schema.columns, form.numbers, strict=True)
    kept = [
        (structs.replace(column, name=what.renames.get(column.name, column.name)), number)
        for column, number in pairs
        if column.name not in what.drops
    ]
    filled = {what.renames.get(n, n): v for n, v in form.filled if n not in what.drops}
    last = form.last
    for name, has_default in what.adds.items():
        last += 1
        kept.append((Column(name, "string", "text"), last))
        filled |= {name: default_of(last)} if has_default else {}
    schema = form.schema
    return replace(
        form,
        schema=TableSchema(schema.table, tuple(column for column, _ in kept), schema.key),
        numbers=tuple(number for _, number in kept),
        last=last,
        filled=tuple(filled.items()),
    )


def carried(row: Row, what: Alteration, form: Form) -> Row:
    """Return an existing row after the alteration that made ``form``."""
    defaults = dict(form.filled)
    moved = {what.renames.get(n, n): v for n, v in row.items() if n not in what.drops}
    return moved | {name: defaults[name] for name, given in what.adds.items() if given}


def logged_steps(what: Alteration, form: Form) -> tuple[ColumnStep, ...]:
    """Return the steps that a log with statements has for the alteration that made ``form``."""
    defaults = dict(form.filled)
    return tuple(
        ColumnStep(StepKind.ADD, step.column, default=defaults.get(step.column))
        if step.kind is StepKind.ADD
        else step
        for step in what.steps
    )


def is_mortal(number: int) -> bool:
    return number % 2 == 0


def value_of(form: Form, name: str, own: random.Random) -> str:
    """Return a fresh value of an added column."""
    return f"{_mark(form.number(name))}.{own.getrandbits(20):x}"


def default_of(number: int) -> str:
    return f"{_mark(number)}{DEFAULT}"


def _mark(number: int) -> str:
    return f"{'m' if is_mortal(number) else 'c'}{number}"


def _extra(form: Form) -> list[str]:
    return [name for name in form.schema.column_names if name not in BASE]
