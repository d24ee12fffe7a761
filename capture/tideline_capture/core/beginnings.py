"""Where the capture of tables begins: at a statement of the log, or at a look at the catalog.

A log that has DDL says itself when a table is made, and holds all of its rows from there on. They
are taken from the first one on, with the columns that the log tells of; the next look at the
catalog only adds to that. A table that was made there, and so was empty, lacks nothing: it needs
no dump. Of any other one rows may be there from before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tideline.contract.manifest import CapturedFrom, TableState
from tideline.contract.schema import parse_table
from tideline_capture.core.blocks import INITIAL
from tideline_capture.core.events import Begun, SchemaSeen, StatementSeen

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

BACK = "the table was gone, and is there again"


class Beginnings:
    """The beginning side of the core. ``core`` is the worker it is part of, ``begun`` are tables
    that a statement gave their name and whose columns nothing has told yet."""

    def __init__(self, core: Worker, begun: Mapping[str, CapturedFrom]) -> None:
        self.begun = dict(begun)
        self._core = core

    def stated(self, seen: StatementSeen) -> None:
        """A statement of the log was carried out: which names are those of other tables now."""
        ended = {name.lower() for name in seen.ended}
        schema = None if seen.schema is None else seen.schema.lower()
        for name in list(self.begun):
            if name.lower() in ended or parse_table(name).schema.lower() == schema:
                self.forget(name)
        for one in seen.begun:
            if self._is_awaited(one.table):
                self.begun.setdefault(one.table, self._from(one))
                self._core.draft.state_changed = True

    def described(self, seen: SchemaSeen) -> None:
        """The log describes a table that is not captured. One that has begun in the log is taken
        from here on, and so is one that the catalog was asked for and has just so."""
        core, table = self._core, seen.schema.table
        state = core.tables.states.get(table)
        if not self._is_awaited(table):
            self.forget(table)
            return
        begun = self.begun.get(table)
        if not seen.schema.key and not seen.keyless and seen.facts is None:
            self.forget(table)
        elif begun is not None and state is not None and state.gone:
            self._come_back(table)
        elif begun is not None or (seen.begins and state is None):
            self._begin(seen, begun)

    def forget(self, table: str) -> None:
        """The name is another table's now, or rows of it were not taken: what comes later is not
        all of them. Nothing where it has not begun."""
        if self.begun.pop(table, None) is not None:
            self._core.draft.state_changed = True

    def first_seen(self, table: str) -> bool:
        """A look at the catalog has a table that nothing was known of, and whose schema is in force
        now; whether it is to be dumped."""
        core = self._core
        begun = self.begun.get(table) or self.here()
        self.forget(table)
        core.tables.states[table] = replace(
            core.tables.states[table],
            generation_manifest=core.durable_number,  # None before has rows of it.
            captured_from=begun,
            complete_seq=begun.seq if begun.created else None,
        )
        return core.limits.initial_dump and not begun.created

    def here(self) -> CapturedFrom:
        """A beginning at this place of the log, a mark that carries the source's clock."""
        return CapturedFrom(self._core.sequencer.next, self._core.clock.time_us)

    def _is_awaited(self, table: str) -> bool:
        """Whether nothing of the table is captured, and nothing but its absence was the cause."""
        state = self._core.tables.states.get(table)
        return state is None or state.gone or (state.cause is not None and state.schema is None)

    def _from(self, one: Begun) -> CapturedFrom:
        core = self._core
        empty = core.catalog.lacked(one.table) if one.empty is None else one.empty
        return CapturedFrom(core.sequencer.next, one.at_us or core.clock.time_us, created=empty)

    def _begin(self, seen: SchemaSeen, begun: CapturedFrom | None) -> None:
        core, table = self._core, seen.schema.table
        core.dumps.orders.joined(table)
        core.tables.states[table] = TableState()
        core.conditions.adopt(seen.schema, seen.facts)
        if begun is not None:
            self.begun[table] = begun
        if self.first_seen(table):
            core.intake.request_dump(INITIAL, [table])

    def _come_back(self, table: str) -> None:
        """What was gone is made again: another table, whose target starts anew."""
        core, begun = self._core, self.begun[table]
        self.forget(table)
        core.dumps.orders.joined(table)
        core.conditions.unpark(table, begun)
        core.blocks.begin_again(table, BACK)
