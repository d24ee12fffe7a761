"""Statements that change a target's rows or properties, the same for every table format.

Conditions and values are expressions of Spark SQL; rows of the target and of the source are named
by the aliases `TARGET` and `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tideline_spark.schemas import literal, quote

# No column of a source begins like these: a bare alias would be taken for a column of that name.
TARGET = "_tl_target"
SOURCE = "_tl_source"


@dataclass(frozen=True, slots=True)
class RowClause:
    """The action on rows that satisfy ``when`` (None: all rows): ``values`` by column are written,
    or (None) the row is deleted."""

    when: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RowMerge:
    """Brings the rows of the view ``source`` into a target.

    ``on``: the condition for equal rows. ``matched`` (the first clause that fits a row counts) is
    for rows of both, ``inserted`` for rows of the source alone, ``unmatched`` for rows of the
    target alone. A row that no clause fits is left unchanged, or not inserted. ``key``: columns,
    never NULL, that rows which satisfy ``on`` have equal.
    """

    source: str
    on: str
    matched: tuple[RowClause, ...] = ()
    inserted: RowClause | None = None
    unmatched: RowClause | None = None
    key: tuple[str, ...] = ()

    def sql(self, table: str, target: str = f"{TARGET}.") -> str:
        """Return the MERGE INTO ``table``, a name in SQL. ``target`` stands before the columns that
        are set: not every dialect has an alias there."""
        lines = [
            f"MERGE INTO {table} AS {TARGET} USING {self.source} AS {SOURCE} ON {self.on}",
            *(f"WHEN MATCHED{_changed(clause, target)}" for clause in self.matched),
        ]
        if self.inserted is not None:
            values = self.inserted.values or {}
            names = ", ".join(quote(name) for name in values)
            listed = ", ".join(values.values())
            lines.append(f"WHEN NOT MATCHED{_condition(self.inserted)} THEN")
            lines.append(f"INSERT ({names}) VALUES ({listed})")  # noqa: S608  names are quoted
        if self.unmatched is not None:
            lines.append(f"WHEN NOT MATCHED BY SOURCE{_changed(self.unmatched, target)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """Writes ``values`` by column into the rows that satisfy ``when`` (None: all rows); columns
    have no alias."""

    values: Mapping[str, str]
    when: str | None = None

    def sql(self, table: str) -> str:
        """Return the UPDATE of ``table``, a name in SQL."""
        listed = ", ".join(f"{quote(name)} = {value}" for name, value in self.values.items())
        where = "" if self.when is None else f" WHERE {self.when}"
        return f"UPDATE {table} SET {listed}{where}"  # noqa: S608  names are quoted


def listed_properties(properties: Mapping[str, str]) -> str:
    """Return a table's properties as SQL lists them."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def set_property(table: str, name: str, value: str | None) -> str:
    """Return the statement that sets or (None) removes a property of ``table``, a name in SQL."""
    change = f"UNSET TBLPROPERTIES IF EXISTS ({literal(name)})"
    if value is not None:
        change = f"SET TBLPROPERTIES ({listed_properties({name: value})})"
    return f"ALTER TABLE {table} {change}"


def of_target(name: str) -> str:
    """Return a column of the target's row."""
    return f"{TARGET}.{quote(name)}"


def of_source(name: str) -> str:
    """Return a column of the source's row."""
    return f"{SOURCE}.{quote(name)}"


def _condition(clause: RowClause) -> str:
    return "" if clause.when is None else f" AND ({clause.when})"


def _changed(clause: RowClause, target: str) -> str:
    if clause.values is None:
        return f"{_condition(clause)} THEN DELETE"
    listed = ", ".join(f"{target}{quote(name)} = {one}" for name, one in clause.values.items())
    return f"{_condition(clause)} THEN UPDATE SET {listed}"
