"""Starts the capture of tables, at a statement of the log or at a look at the catalog.

A log that has DDL shows when a table is made, and holds all of its rows from there on. They are
taken from the first one on, with the columns that the log describes; the next look at the catalog
only adds to that. A table that was made there, and so was empty, lacks nothing: it needs no dump.
Any other table may have rows from before.
"""

from __future__ import annotations

from tideline.contract.open_state import CapturedFrom, TableState
from tideline.contract.reasons import SnapshotReason
from tideline.contract.schema import parse_table
from tideline_capture.core.effects import Effects, Joined, SnapshotWanted
from tideline_capture.core.events import Begun, SchemaSeen, StatementSeen
from tideline_capture.core.state import CoreState
from tideline_capture.core.tables.blocks import Blocks
from tideline_capture.core.tables.conditions import Conditions
from tideline_capture.core.tables.notes import LogNotes

BACK = "the table was gone, and is there again"


class Beginnings:
    """Starts the capture of tables."""

    def __init__(
        self, state: CoreState, conditions: Conditions, blocks: Blocks, notes: LogNotes
    ) -> None:
        self._state = state
        self._conditions = conditions
        self._blocks = blocks
        self._notes = notes

    def on_statement(self, seen: StatementSeen) -> None:
        """Take a DDL statement of the log: note which names are those of other tables now."""
        ended = {name.lower() for name in seen.ended}
        schema = None if seen.schema is None else seen.schema.lower()
        for name in list(self._state.begun):
            if name.lower() in ended or parse_table(name).schema.lower() == schema:
                self._state.forget_begun(name)
        for one in seen.begun:
            if self._is_awaited(one.table) and one.table not in self._state.begun:
                self._state.begin(one.table, self._from(one))

    def described(self, seen: SchemaSeen) -> Effects:
        """Take the log's description of a table that is not captured.

        One that has begun in the log is taken from here on, and so is one that the settings begin,
        if the catalog shows just these columns.
        """
        table = seen.schema.table
        state = self._state.tables.get(table)
        if not self._is_awaited(table):
            self._state.forget_begun(table)
            return
        begun = self._state.begun.get(table)
        if not seen.schema.key and not seen.keyless and seen.facts is None:
            self._state.forget_begun(table)
        elif begun is not None and state is not None and state.removed:
            yield from self._come_back(table, begun)
        elif begun is not None or (seen.starts_capture and state is None):
            yield from self._begin(seen, begun)

    def first_seen(self, table: str) -> bool:
        """Note a table that the catalog shows first, with its schema now in force.

        Returns whether it is to be dumped.
        """
        state = self._state
        begun = state.begun.get(table) or self.here()
        state.forget_begun(table)
        state.change_table(
            table,
            generation_manifest=state.durable_number,  # None before has rows of it.
            captured_from=begun,
            complete_seq=begun.seq if begun.created else None,
        )
        return state.policy.initial and not begun.created

    def here(self) -> CapturedFrom:
        """Return a beginning here in the log, at a watermark that carries the source's clock."""
        return CapturedFrom(self._state.next_seq, self._state.clock.time_us)

    def _is_awaited(self, table: str) -> bool:
        """Return whether nothing of the table is captured, only because it was absent."""
        state = self._state.tables.get(table)
        return state is None or state.removed or (state.cause is not None and state.schema is None)

    def _from(self, one: Begun) -> CapturedFrom:
        state = self._state
        empty = self._notes.lacked(one.table) if one.empty is None else one.empty
        return CapturedFrom(state.next_seq, one.at_us or state.clock.time_us, created=empty)

    def _begin(self, seen: SchemaSeen, begun: CapturedFrom | None) -> Effects:
        table = seen.schema.table
        yield Joined(table)
        self._state.set_table(table, TableState())
        yield from self._conditions.adopt(seen.schema, seen.facts)
        if begun is not None:
            self._state.begin(table, begun)
        if self.first_seen(table):
            yield SnapshotWanted((table,), SnapshotReason.INITIAL)

    def _come_back(self, table: str, begun: CapturedFrom) -> Effects:
        """Restart a table that was gone and is made again: it is another table, with a new
        target."""
        self._state.forget_begun(table)
        yield Joined(table)
        yield from self._conditions.recapture(table, begun)
        yield from self._blocks.begin_again(table, BACK)
