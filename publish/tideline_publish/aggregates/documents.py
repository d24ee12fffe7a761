"""Documents of rows in the state, and the roots that a row belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from tideline.contract.aggregates import Aggregate, Member, Node, nodes
from tideline.contract.errors import CorruptData
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind
from tideline_publish.aggregates.rows import Values
from tideline_publish.aggregates.state import AggregateState, joined_by


class Documents:
    """The documents of ``aggregates``. ``schemas``: of their tables, as they are now."""

    def __init__(
        self,
        aggregates: Sequence[Aggregate],
        state: AggregateState,
        schemas: Mapping[str, TableSchema],
    ) -> None:
        self._aggregates = aggregates
        self._state = state
        self._schemas = schemas
        self._places: dict[str, list[tuple[int, Node]]] = {}
        for at, aggregate in enumerate(aggregates):
            for node in nodes(aggregate):
                self._places.setdefault(node.member.table, []).append((at, node))

    def mark(self, table: str, key: str, values: Values, *, made: bool = False) -> None:
        """Mark the roots that the row belongs to, as it is in the state, as due; ``made``: it was
        not there before, so that a root has no document yet."""
        for at, node in self._places[table]:
            for root in self._roots(node, key, values):
                self._state.mark(at, root, existed=not (made and node.parent is None))

    def document(self, aggregate: int, key: str) -> bytes | None:
        """Return the document of the root with ``key``, a JSON object; None where there is no such
        root. Raises CorruptData for a row whose columns are not all known."""
        root = self._aggregates[aggregate].root
        row = self._state.get(root.table, key)
        return None if row is None else self._object(root, row.values)

    def key_object(self, aggregate: int, key: str) -> bytes:
        """Return the key as a JSON object."""
        schema = self._schemas[self._aggregates[aggregate].root.table]
        values = msgspec.json.decode(key, type=list[msgspec.Raw])
        return msgspec.json.encode(dict(zip(schema.key, values, strict=True)))

    def _roots(self, node: Node, key: str, values: Values) -> Iterator[str]:
        if node.parent is None:
            yield key
            return
        value = joined_by(values, node.member.own)
        parent = node.parent.member
        if value is None:
            return
        for parent_key in self._state.find(parent.table, node.member.parents, value):
            row = self._state.get(parent.table, parent_key)
            if row is not None:
                yield from self._roots(node.parent, parent_key, row.values)

    def _object(self, member: Member, values: Values) -> bytes:
        schema = self._schemas[member.table]
        try:
            found = {name: values[name] for name in member.shown(schema)}
        except KeyError as error:
            raise CorruptData(
                f"a row of {member.table} lacks its column {error.args[0]}, which the log left out",
                hint=f"dump the table again: tideline dump {member.table}",
            ) from None
        for child in member.children:
            found[child.field] = msgspec.Raw(self._child(child, values))
        return msgspec.json.encode(found)

    def _child(self, child: Member, parent: Values) -> bytes:
        value = joined_by(parent, child.parents)
        keys = [] if value is None else list(self._state.find(child.table, child.own, value))
        keys.sort(key=self._order(child.table))
        rows = (self._state.get(child.table, key) for key in (keys if child.many else keys[:1]))
        found = [self._object(child, row.values) for row in rows if row is not None]
        if child.many:
            return b"[%b]" % b",".join(found)
        return found[0] if found else b"null"

    def _order(self, table: str) -> Any:
        """Return the order of rows by their key: numbers by their value, all else by its text."""
        schema = self._schemas[table]
        decimals = [schema.column(name).logical.kind is Kind.DECIMAL for name in schema.key]

        def order(key: str) -> list[Any]:
            values = msgspec.json.decode(key)
            return [
                Decimal(value) if decimal else value
                for value, decimal in zip(values, decimals, strict=True)
            ]

        return order
