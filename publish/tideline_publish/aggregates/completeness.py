"""Decides whether the state has every row of the members' tables, so that documents are whole.

While a table is dumped, its rows come chunk by chunk, and a join lacks those that are still to
come. So documents are withheld until each table was dumped to its end, behind the place where the
state began, or was created in the log; and again while rows of a table are in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tideline.contract.aggregates import Aggregate, problem, tables
from tideline.contract.open_state import TableCondition, TableState
from tideline.contract.schema import TableSchema


class Completeness:
    """The tables of ``aggregates``. ``base_seq``: the state has what came behind it; 0: everything.
    ``dumped``: by table the delete-before sequence of its last whole dump."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._aggregates = aggregates
        self._tables = tables(aggregates)
        self.base_seq = 0
        self.dumped: dict[str, int] = {}

    def lacking(self, states: Mapping[str, TableState]) -> str | None:
        """Return what is still missing in the chain, None when nothing is. ``states`` are those of
        the chain's tables after the state's last manifest."""
        for table in self._tables:
            known = states.get(table, TableState())
            if known.condition is not TableCondition.ACTIVE:
                return f"{table} is {known.condition.shown}"
            if known.schema is None:
                return f"{table} is not captured"
            if known.complete_seq is None or not self._is_behind_base(table, known):
                return f"{table} was not dumped to its end"
        return None

    def problem(self, schemas: Mapping[str, TableSchema]) -> str | None:
        """Return what in the definition does not fit the tables as they are now; None if
        nothing. Tables that are not known yet are no problem."""
        for aggregate in self._aggregates:
            if all(table in schemas for table in tables([aggregate])):
                found = problem(aggregate, schemas)
                if found is not None:
                    return found
        return None

    def _is_behind_base(self, table: str, known: TableState) -> bool:
        created = known.captured_from
        if self.base_seq == 0 or self.dumped.get(table, -1) >= self.base_seq:
            return True
        return created is not None and created.created and created.seq > self.base_seq
