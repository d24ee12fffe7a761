"""The aggregates of a pipeline: tables whose rows together are one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from tideline.contract.aggregates import Aggregate, Member
from tideline.contract.errors import CorruptData
from tideline.contract.schema import parse_table
from tideline.settings.base import Effect, Section

_FieldName = Annotated[str, Field(min_length=1, max_length=200)]
_Columns = Annotated[tuple[str, ...], Field(min_length=1, max_length=1_000)]


class ChildSettings(Section):
    """A child of a member of an aggregate."""

    effect = Effect.COMMAND

    table: str
    """The table, as `schema.table`."""
    keys: Annotated[Mapping[str, str], Field(min_length=1, max_length=32)]
    """The columns by which a row belongs to one of its parent: of this table, and those of the
    parent's that they equal."""
    many: bool = True
    """The field is a list of all rows that belong there, ordered by their key; `false`: the row
    itself, or null."""
    columns: _Columns | None = None
    """The columns that documents show; None: all."""
    children: Annotated[Mapping[_FieldName, ChildSettings], Field(max_length=100)] = {}
    """The child's own children, by the names of their fields."""

    @field_validator("table")
    @classmethod
    def _one_table(cls, table: str) -> str:
        return _table(table)

    def member(self, field: str) -> Member:
        """Return the child in the field of that name."""
        joined = tuple(sorted(self.keys.items()))
        return Member(self.table, field, joined, self.many, self.columns, _members(self.children))


class AggregateSettings(Section):
    """An aggregate: one document for each row of its root."""

    effect = Effect.COMMAND

    root: str
    """The root's table, as `schema.table`."""
    columns: _Columns | None = None
    """The columns of the root that documents show; None: all."""
    children: Annotated[Mapping[_FieldName, ChildSettings], Field(max_length=100)] = {}
    """Its children, by the names of their fields."""

    @field_validator("root")
    @classmethod
    def _one_table(cls, table: str) -> str:
        return _table(table)

    @model_validator(mode="after")
    def _not_too_deep(self) -> Self:
        depth, level = 0, [*self.children.values()]
        while level:
            depth += 1
            level = [one for child in level for one in child.children.values()]
        if depth > 10:
            raise ValueError("has children of children more than 10 deep")
        return self

    def aggregate(self, name: str) -> Aggregate:
        """Return the aggregate of that name."""
        return Aggregate(
            name, Member(self.root, columns=self.columns, children=_members(self.children))
        )


def _members(children: Mapping[str, ChildSettings]) -> tuple[Member, ...]:
    return tuple(child.member(field) for field, child in children.items())


def _table(text: str) -> str:
    """Return the table in the form that documents have it in."""
    try:
        return str(parse_table(text))
    except CorruptData as error:
        raise ValueError(error.message) from None
