"""Rounds over the source's catalog: new tables, lost ones, and changes that no row event reports.

A round reads the catalog between two of our marks, C and B. Tables whose schema the log changed,
that it truncated, or that a statement in it named, between those marks are left for the next round:
what was read may be older or newer than what the log says. So are tables that a transaction changed
whose commit the log had before C, but which was not visible yet to the round.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from tideline.contract.manifest import GONE, TableState
from tideline.contract.schema import parse_table
from tideline_capture.core.beginnings import BACK
from tideline_capture.core.blocks import INITIAL
from tideline_capture.core.drift import drift, republished
from tideline_capture.core.events import CatalogRound, Mark, Snapshot, TableFacts
from tideline_capture.core.tables import CATALOG
from tideline_capture.core.visibility import invisible

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

_ROUNDS_MAX = 32


class CatalogWatch:
    """The catalog side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self.seen_token: str | None = None
        """The token of the newest mark B that came back through the log."""
        self.rounds = 0
        """Rounds of this worker whose marks came through the log."""
        self.caught_up = False
        """Whether the newest round left no table for the next one."""
        self._core = core
        self._low: str | None = None
        self._newest = ""
        self._moving: set[str] = set()
        self._stated: set[str] = set()
        self._moved_by: dict[str, int] = {}
        self._truncated: dict[str, int] = {}
        self._equal_at: dict[str, int] = {}
        self._missed: set[str] = set()
        self._listed: set[str] | None = None
        self._rounds: dict[str, CatalogRound] = {}

    def on_round(self, observed: CatalogRound) -> None:
        """A round's result; it counts when its mark B comes through the log.

        While the log is far behind, the rounds that come through first are kept.
        """
        if len(self._rounds) < _ROUNDS_MAX and observed.token != self.seen_token:
            self._rounds[observed.token] = observed

    def on_low(self, mark: Mark) -> None:
        if mark.token <= self._newest:
            return  # A copy of the mark: what it would forget has moved since the round began.
        self._low = self._newest = mark.token
        self._moving.clear()
        self._stated.clear()

    def on_high(self, mark: Mark) -> None:
        self.seen_token = mark.token
        self.caught_up = False
        observed = self._take_round(mark.token)
        # A worker before us may have left the marks of its rounds in the log.
        self.rounds += observed is not None
        if observed is None or mark.token != self._low:
            return
        self._low = None
        settled = [
            facts for facts in observed.tables if self._is_settled(facts.table, observed.snapshot)
        ]
        fresh = [facts.table for facts in settled if self._compare(facts)]
        self.caught_up = len(settled) == len(observed.tables)
        if fresh:
            self._core.intake.request_dump(INITIAL, fresh)
        self._miss({facts.table for facts in observed.tables})

    def _take_round(self, token: str) -> CatalogRound | None:
        """The round of ``token``; those before it are dropped, for their marks have passed."""
        if token in self._rounds:
            while (first := next(iter(self._rounds))) != token:
                del self._rounds[first]
        return self._rounds.pop(token, None)

    def _is_settled(self, table: str, snapshot: Snapshot) -> bool:
        """Whether the round saw all that the log says of the table's form, and no more."""
        names = (table.lower(), parse_table(table).schema.lower())
        if table in self._moving or not self._stated.isdisjoint(names):
            return False
        moved_by = np.array([self._moved_by.get(table, 0)], np.int64)
        return not (moved_by[0] and len(invisible(moved_by, snapshot)))

    def schema_seen(self, table: str, xid: int) -> None:
        self._moved_by[table] = xid

    def schema_changed(self, table: str) -> None:
        self._moving.add(table)

    def stated(self, names: Iterable[str]) -> None:
        """A statement in the log named these tables or schemas, in letters of its own. A table that
        is not known yet has no other way to tell that it has changed since the round saw it."""
        self._stated.update(name.lower() for name in names)

    def truncated(self, table: str, xid: int) -> None:
        self._moving.add(table)
        self._moved_by[table] = xid
        self._truncated[table] = xid

    def lacked(self, table: str) -> bool:
        """Whether the newest round of this worker did not find ``table``."""
        return self._listed is not None and table not in self._listed

    def last_equal(self, table: str, otherwise: int) -> int:
        """The last sequence at which the table was found equal to its catalog."""
        return self._equal_at.get(table, otherwise)

    def _compare(self, facts: TableFacts) -> bool:
        """Bring the table's state up to the catalog; whether an initial dump is due."""
        core, table = self._core, facts.table
        if facts.problem is not None or facts.schema is None:
            reason = facts.problem or "it has no columns"
            core.conditions.park(table, reason=reason, hint=facts.hint, cause=CATALOG)
            return False
        if not facts.membership:
            return False  # It left the publication in this very round; the next one adds it again.
        state = core.tables.states.get(table)
        if state is None or state.schema is None:
            return self._first_seen(facts)
        parked = core.tables.parked(table)
        if parked is not None:
            if parked == CATALOG:
                self._return(facts, state)
            return False
        self._settle(facts, self._drift(facts, state.catalog))
        self._truncated.pop(table, None)
        core.blocks.start_anew(table)
        return False

    def _drift(self, facts: TableFacts, before: str | None) -> str | None:
        if before is None:
            return None
        if republished(before, facts):
            self._core.dumps.orders.joined(facts.table)
        return drift(
            before,
            facts,
            self._core.tables.schemas,
            truncated=self._only_truncated(facts),
            certain=self._core.tables.follows(facts),
        )

    def _only_truncated(self, facts: TableFacts) -> bool:
        """Whether the log told of a truncate, and nobody stored the rows anew after it: neither a
        later transaction, nor the same one, which may have inserted rows before it computed values
        of a column anew (ALTER … USING, a default that differs from row to row)."""
        by = self._truncated.get(facts.table)
        if by is None:
            return False
        return not by or not facts.changed_by or (facts.changed_by == by and not facts.columns_too)

    def _settle(self, facts: TableFacts, reason: str | None) -> None:
        """Adopt what the catalog says; ``reason``: why rows may differ all the same."""
        core, table = self._core, facts.table
        if facts.schema is not None:
            core.conditions.adopt(facts.schema, facts)
            core.conditions.describe(facts.description)
        news = core.tables.seen_equal(facts)
        if reason is not None:
            since = self.last_equal(table, core.sequencer.last)
            core.conditions.doubt(table, since=since, reason=reason)
        if news or reason is not None:
            core.draft.state_changed = True
        self._equal_at[table] = core.sequencer.last

    def _first_seen(self, facts: TableFacts) -> bool:
        """A table seen for the first time; whether it is to be dumped."""
        core = self._core
        core.dumps.orders.joined(facts.table)
        core.tables.states.pop(facts.table, None)
        self._settle(facts, None)
        return core.beginnings.first_seen(facts.table)

    def _return(self, facts: TableFacts, state: TableState) -> None:
        """A parked table that can be captured again: a dump makes up for what was missed."""
        core, since = self._core, state.since_seq
        core.dumps.orders.joined(facts.table)
        core.conditions.unpark(facts.table, core.beginnings.here())
        self._settle(facts, None)
        if state.was_gone or state.gone:
            core.blocks.begin_again(facts.table, BACK)
            return
        core.conditions.doubt(
            facts.table,
            since=since if since is not None else core.sequencer.last,
            reason=f"it was parked: {state.reason}",
        )

    def _miss(self, present: set[str]) -> None:
        """A table that is not there may be in the middle of an ALTER: it is gone if two rounds in a
        row do not find it."""
        core = self._core
        self._listed = present
        absent = (core.tables.states.keys() | core.beginnings.begun.keys()) - present
        again, self._missed = absent & self._missed, absent
        for table in again:
            core.beginnings.forget(table)
        self.caught_up &= absent == again
        for table in list(core.tables.states):
            if table in again:
                core.conditions.park(
                    table,
                    reason=GONE,
                    hint=None,
                    cause=CATALOG,
                )
