"""The log's events of tables since the last looks at the catalog.

A look may be older or newer than the log: a round leaves out the tables noted here.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tideline.contract.schema import parse_table
from tideline_capture.core.facts import Snapshot, TableFacts
from tideline_capture.core.visibility import invisible


class LogNotes:
    """Notes of one session; a successor begins without any."""

    def __init__(self) -> None:
        self._moving: set[str] = set()
        self._observed: set[str] = set()
        self._moved_by: dict[str, int] = {}
        self._truncated: dict[str, int] = {}
        self._equal_at: dict[str, int] = {}
        self._listed: set[str] | None = None

    # -- the log -------------------------------------------------------------------------------

    def schema_seen(self, table: str, xid: int) -> None:
        self._moved_by[table] = xid

    def schema_changed(self, table: str) -> None:
        self._moving.add(table)

    def on_statement(self, names: Iterable[str]) -> None:
        """Note that a statement in the log named these tables or schemas, in its own letter case.

        A table that is not known yet has no other way to show that it has changed since the round
        saw it.
        """
        self._observed.update(name.lower() for name in names)

    def truncated(self, table: str, xid: int) -> None:
        self._moving.add(table)
        self._moved_by[table] = xid
        self._truncated[table] = xid

    # -- the catalog ---------------------------------------------------------------------------

    def begin_round(self) -> None:
        self._moving.clear()
        self._observed.clear()

    def is_settled(self, table: str, snapshot: Snapshot) -> bool:
        """Return whether the round saw all of the table's form that the log has, and no more."""
        names = (table.lower(), parse_table(table).schema.lower())
        if table in self._moving or not self._observed.isdisjoint(names):
            return False
        moved_by = np.array([self._moved_by.get(table, 0)], np.int64)
        return not (moved_by[0] and len(invisible(moved_by, snapshot)))

    def only_truncated(self, facts: TableFacts) -> bool:
        """Return whether the log reported a truncate, and rows were not stored again after it.

        Neither by a later transaction, nor by the same one, which may have inserted rows before it
        computed values of a column (ALTER … USING, a default that differs from row to row).
        """
        by = self._truncated.get(facts.table)
        if by is None:
            return False
        return not by or not facts.changed_by or (facts.changed_by == by and not facts.columns_too)

    def compared(self, table: str) -> None:
        """Note that the catalog has been compared since the last truncate."""
        self._truncated.pop(table, None)

    def found_equal(self, table: str, seq: int) -> None:
        self._equal_at[table] = seq

    def last_equal(self, table: str, otherwise: int) -> int:
        """Return the last sequence at which the table was found equal to its catalog."""
        return self._equal_at.get(table, otherwise)

    def listed(self, present: set[str]) -> None:
        """Note the tables that a round found."""
        self._listed = present

    def lacked(self, table: str) -> bool:
        """Return whether the newest round of this worker did not find ``table``."""
        return self._listed is not None and table not in self._listed
