"""Names changes of an Iceberg table's columns, which make no snapshot. Pure.

Columns have ids: a renamed one keeps its own, and two that exchange their names are two renames. A
column that is added changes no value of a row; comments and NOT NULL change none either.
https://iceberg.apache.org/spec/#schema-evolution
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tideline.contract.external_commits import TableCommit

RENAMED, DROPPED, RETYPED = "RENAME COLUMN", "DROP COLUMN", "CHANGE COLUMN TYPE"

Columns = Mapping[int, tuple[str, str]]
"""A schema's columns: name and type by id."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of columns without a snapshot: its ``kinds``, and the columns ``after`` it."""

    version: int
    kinds: str
    after: Columns
    at_us: int

    def commit(self, *, judged: bool) -> TableCommit:
        """Return it as a commit."""
        return TableCommit(
            self.version, self.kinds, None, True, {}, None, 0, self.at_us, judged=judged
        )


def columns_of(schema: Mapping[str, Any]) -> Columns:
    """Return the columns of a schema in Iceberg's JSON."""
    return {
        int(one["id"]): (one["name"], json.dumps(one["type"], sort_keys=True))
        for one in schema["fields"]
    }


def changes_between(before: Columns, after: Columns) -> str:
    """Return the kinds of changes by which a name stands for other values, or a column for another
    type; "" for none."""
    kept = [(before[number], after[number]) for number in before.keys() & after.keys()]
    found = {
        RENAMED: any(was[0] != now[0] for was, now in kept),
        DROPPED: bool(before.keys() - after.keys()),
        RETYPED: any(was[1] != now[1] for was, now in kept),
    }
    return ", ".join(kind for kind, there in found.items() if there)


class Schemas:
    """The schemas that a table's metadata keeps, by their ids."""

    def __init__(self, schemas: Iterable[Mapping[str, Any]]) -> None:
        self._columns: Mapping[int | None, Columns] = {
            one["schema-id"]: columns_of(one) for one in schemas
        }

    def names(self, schema_id: int | None) -> dict[int, str]:
        """Return the names of a schema's columns, by id."""
        return {number: name for number, (name, _) in self._columns.get(schema_id, {}).items()}

    def same(self, one: int | None, other: int) -> bool:
        """Return whether two schemas have the same columns; not where one is no longer kept."""
        return one in self._columns and self._columns[one] == self._columns.get(other)

    def differ(self, before: int | None, after: int) -> bool:
        """Return whether columns were renamed, dropped or given another type from one schema to
        another; also where the first is no longer kept."""
        if before not in self._columns:
            return True
        return bool(changes_between(self._columns[before], self._columns[after]))

    def change(
        self, before: int | None, after: int | None, version: int, at_us: int
    ) -> ColumnChange | None:
        """Return what changed from one schema to another; None for nothing, or where one of them is
        not known."""
        if before == after or before not in self._columns or after not in self._columns:
            return None
        kinds = changes_between(self._columns[before], self._columns[after])
        return ColumnChange(version, kinds, self._columns[after], at_us) if kinds else None

    def know(self, schema_id: int, change: ColumnChange) -> bool:
        """Return whether who knew a schema knew the columns as ``change`` left them."""
        known = self._columns.get(schema_id)
        return known is not None and not changes_between(known, change.after)
