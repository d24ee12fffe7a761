"""Aggregates: a root table and the tables around it, as one document for each row of the root.

The definition is shared: publishers and Spark jobs make the same documents by it. A document is the
root's row, as an object, and in it a field for each child: a list of objects ordered by the child's
key (``many``), or one object or null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tideline.contract.schema import Column, TableSchema
from tideline.contract.types import Kind

SCHEMA = "aggregates"
"""The schema that documents have in the names of topics and indexes: ``aggregates.customer``."""
_INTEGERS = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
_INEXACT = frozenset({Kind.FLOAT32, Kind.FLOAT64})


class Member(msgspec.Struct, frozen=True):
    """A table of an aggregate. ``joined`` are the child's columns and their parent's, which are
    equal where a row belongs to another; empty for the root. ``columns``: those that documents
    show, in this order; None: all.
    """

    table: str
    field: str = ""
    joined: tuple[tuple[str, str], ...] = ()
    many: bool = True
    columns: tuple[str, ...] | None = None
    children: tuple[Member, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """The child's columns of ``joined``."""
        return tuple(own for own, _ in self.joined)

    @property
    def parents(self) -> tuple[str, ...]:
        """The parent's columns of ``joined``."""
        return tuple(parent for _, parent in self.joined)

    def shown(self, schema: TableSchema) -> tuple[str, ...]:
        """Return the columns that a document shows of a row."""
        return schema.column_names if self.columns is None else self.columns


class Aggregate(msgspec.Struct, frozen=True):
    """An aggregate by its name."""

    name: str
    root: Member

    @property
    def fingerprint(self) -> str:
        """16 hex digits over the definition."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    @property
    def table(self) -> str:
        """The name that its documents have in the place of a table's."""
        return f"{SCHEMA}.{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """A member in its place: ``parent`` is None for the root."""

    member: Member
    parent: Node | None = None


def nodes(aggregate: Aggregate) -> list[Node]:
    """Return the members in their places, each behind its parent."""
    return list(_below(Node(aggregate.root)))


def tables(aggregates: Sequence[Aggregate]) -> tuple[str, ...]:
    """Return the tables of ``aggregates``, sorted."""
    return tuple(sorted({node.member.table for one in aggregates for node in nodes(one)}))


def lookups(aggregates: Sequence[Aggregate]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tables and columns that rows are looked up by: downwards the children of a row,
    upwards the parents of a child."""
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for aggregate in aggregates:
        for node in nodes(aggregate):
            if node.parent is not None:
                found[node.member.table, node.member.own] = None
                found[node.parent.member.table, node.member.parents] = None
    return sorted(found)


def problem(aggregate: Aggregate, schemas: Mapping[str, TableSchema]) -> str | None:
    """Return what keeps documents from being made of tables with ``schemas``; None if nothing."""
    for node in nodes(aggregate):
        found = _problem(node, schemas)
        if found is not None:
            return f"aggregates.{aggregate.name}: {found}"
    return None


def _below(node: Node) -> Iterator[Node]:
    yield node
    for child in node.member.children:
        yield from _below(Node(child, node))


def _problem(node: Node, schemas: Mapping[str, TableSchema]) -> str | None:
    member = node.member
    schema = schemas[member.table]
    if not schema.key:
        return f"{member.table} has no key, which members need"
    inexact = [name for name in schema.key if schema.column(name).logical.kind in _INEXACT]
    if inexact:
        return f"the key of {member.table} is a floating-point number ({inexact[0]})"
    for name in (*(member.columns or ()), *member.own):
        if name not in schema.column_names:
            return f"{member.table} has no column {name}"
    shown = member.shown(schema)
    for child in member.children:
        if child.field in shown:
            return f"{member.table} has a column {child.field}, the name of a child's field"
        for name in child.parents:
            if name not in schema.column_names:
                return f"{member.table} has no column {name}"
    if node.parent is not None:
        return _types_problem(member, schema, schemas[node.parent.member.table])
    return None


def _types_problem(member: Member, schema: TableSchema, parent: TableSchema) -> str | None:
    for own, other in member.joined:
        if other in parent.column_names and not _comparable(
            schema.column(own), parent.column(other)
        ):
            return (
                f"{member.table}.{own} is not of the type of {parent.table}.{other}, or of one"
                " that is not compared"
            )
    return None


def _comparable(left: Column, right: Column) -> bool:
    """Return whether equal values of the two have equal texts."""
    kinds = {left.logical.kind, right.logical.kind}
    if kinds <= _INTEGERS:
        return True
    if kinds & _INEXACT or len(kinds) > 1:
        return False
    return left.logical.scale == right.logical.scale
