"""The tables of the simulated source: their forms, their rows, and their own order of keys.

Every row has ``ver``, the count of its key's changes, so that the oracle knows each version. A
row's digest is its canonical text: no two versions of a row have the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tideline.contract.open_state import ColumnNumbers
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.facts import TableFacts

Key = tuple[str | int, ...]
Row = Mapping[str, Any]
"""Column → value; a column that is absent is NULL."""

ACCOUNTS, ITEMS, NAMES = "sim.accounts", "sim.items", "sim.names"
TABLES = (ACCOUNTS, ITEMS, NAMES)
LATER = "sim.later"
"""A table that is made during the run, where the log shows that."""
TOAST = "big"
"""The column whose value the log leaves out when an update does not touch it (PostgreSQL)."""

BASE = frozenset({"id", "name", "ver", "balance", "v", TOAST})
"""Columns that are always there; others come and go (`devtools.simulation.columns`)."""
DEFAULT = ".default"
"""Ends the default of a column."""

_COLUMNS = {
    ACCOUNTS: (("id", "int64"), ("ver", "int64"), ("balance", "int64"), (TOAST, "string")),
    ITEMS: (("id", "int64"), ("ver", "int64"), ("v", "string"), (TOAST, "string")),
    LATER: (("id", "int64"), ("ver", "int64"), ("v", "string"), (TOAST, "string")),
    NAMES: (("name", "string"), ("ver", "int64"), ("v", "string"), (TOAST, "string")),
}


@dataclass(frozen=True, slots=True)
class Form:
    """A table as its catalog has it.

    ``storage`` changes with a truncate or a rewrite, ``oid`` with the table itself, ``membership``
    when it is published again (empty: it is not). ``numbers`` are those of its columns, ``last``
    the last one given; the catalog shows them if it is ``numbered``. ``filled`` has the values of
    existing rows in columns that were added with a default.
    """

    schema: TableSchema
    oid: int
    storage: int
    numbers: tuple[int, ...]
    last: int
    numbered: bool
    membership: str = ""
    key_version: int = 1
    filled: tuple[tuple[str, str], ...] = ()

    def number(self, column: str) -> int:
        return self.numbers[self.schema.column_names.index(column)]

    @property
    def facts(self) -> TableFacts:
        return _facts(self)


@functools.lru_cache(maxsize=4096)
def _facts(form: Form) -> TableFacts:
    names = form.schema.column_names
    columns = [f"{name}:{form.schema.column(name).source_type}" for name in names]
    if form.numbered:
        columns = [f"{n}:{one}" for n, one in zip(form.numbers, columns, strict=True)]
    return TableFacts(
        table=form.schema.table,
        schema=form.schema,
        oid=form.oid,
        storage=str(form.storage),
        columns=tuple(columns),
        members="m+",
        key_definition=f"{form.oid}:{form.key_version}",
        membership=form.membership,
        backfilled=tuple(name for name, _ in form.filled) if form.numbered else (),
        numbers=ColumnNumbers(form.oid, form.numbers, form.last) if form.numbered else None,
        defaults=dict(form.filled) if form.numbered else {},
    )


@dataclass(slots=True)
class SimulatedTable:
    """A table as every new snapshot sees it. ``vers`` counts the changes of each key."""

    name: str
    form: Form
    rows: dict[Key, Row] = field(default_factory=dict)
    vers: dict[Key, int] = field(default_factory=dict)
    locked: set[Key] = field(default_factory=set)
    exclusive: bool = False
    """True while a transaction that truncates or alters it has not become visible or ended."""

    def ordered(self) -> list[Key]:
        """Return the keys in the database's order."""
        return sorted(self.rows, key=collated)


def first_form(table: str, oid: int, *, numbered: bool) -> Form:
    columns = tuple(
        Column(name, kind, {"int64": "bigint", "string": "text"}[kind], nullable=at > 1)
        for at, (name, kind) in enumerate(_COLUMNS[table])
    )
    schema = TableSchema(table, columns, (columns[0].name,))
    count = len(columns)
    return Form(schema, oid, oid * 100, tuple(range(1, count + 1)), count, numbered)


def collated(key: Key) -> tuple[object, ...]:
    """Return a key for the database's order.

    Texts come without regard to case first, as collations have it, which is not the order of their
    characters.
    """
    return tuple((part.lower(), part) if isinstance(part, str) else part for part in key)


def digest_of(row: Row) -> str:
    """Return the canonical text of a row, as it was written under its version.

    A NULL column and one that is not there yet are the same, and so are names of columns that may
    change. The values of existing rows in a column that was added are no part of it, nor is a
    column that may be dropped.
    """
    named = [f"{name}={row[name]}" for name in sorted(row) if name in BASE]
    others = sorted(str(value) for name, value in row.items() if name not in BASE)
    lasting = [one for one in others if one.startswith("c") and not one.endswith(DEFAULT)]
    return ";".join([*(one for one in named if not one.endswith("=None")), *lasting])


def shape_of(row: Row) -> str:
    """Return all that a row holds, by the names of its columns now."""
    return ";".join(f"{name}={row[name]}" for name in sorted(row) if row[name] is not None)
