"""Catalog rounds: find new tables, lost ones, and changes that no row event reports.

A round reads the catalog between two of our watermarks, C and B. Tables whose schema the log
changed, that it truncated, or that a statement in it named, between those watermarks are left for
the next round: what was read may be older or newer than the log. So are tables that a transaction
changed whose commit the log had before C, but which was not visible yet to the round.
"""

from __future__ import annotations

from tideline.contract.open_state import REMOVED, TableState
from tideline.contract.reasons import SnapshotReason
from tideline_capture.core.effects import Deciding, Effects, Joined, SnapshotWanted
from tideline_capture.core.events import Watermark
from tideline_capture.core.facts import CatalogRound, TableFacts
from tideline_capture.core.state import CATALOG, CoreState
from tideline_capture.core.tables.beginnings import BACK, Beginnings
from tideline_capture.core.tables.blocks import Blocks
from tideline_capture.core.tables.conditions import Conditions
from tideline_capture.core.tables.drift import drift, republished
from tideline_capture.core.tables.notes import LogNotes
from tideline_capture.core.tables.states import TableStates

_ROUNDS_MAX = 32


class SeenRounds:
    """Compares tables with the catalog, round by round."""

    def __init__(
        self,
        state: CoreState,
        tables: TableStates,
        conditions: Conditions,
        blocks: Blocks,
        beginnings: Beginnings,
        notes: LogNotes,
    ) -> None:
        self.seen_token: str | None = None
        """The token of the newest watermark B that came back through the log."""
        self.counted = 0
        """Rounds of this worker whose watermarks came through the log."""
        self.caught_up = False
        """True if the newest round left no table for the next one."""
        self._state = state
        self._tables = tables
        self._conditions = conditions
        self._blocks = blocks
        self._beginnings = beginnings
        self._notes = notes
        self._low: str | None = None
        self._newest = ""
        self._missed: set[str] = set()
        self._rounds: dict[str, CatalogRound] = {}

    def on_round(self, observed: CatalogRound) -> None:
        """Take a round's result; it counts when its watermark B comes through the log.

        While the log is far behind, the rounds that come through first are kept.
        """
        if len(self._rounds) < _ROUNDS_MAX and observed.token != self.seen_token:
            self._rounds[observed.token] = observed

    def on_low(self, watermark: Watermark) -> None:
        if watermark.token <= self._newest:
            return  # A copy of the watermark: what it would forget has moved since the round began.
        self._low = self._newest = watermark.token
        self._notes.begin_round()

    def on_high(self, watermark: Watermark) -> Effects:
        self.seen_token = watermark.token
        self.caught_up = False
        observed = self._take_round(watermark.token)
        # A worker before us may have left the watermarks of its rounds in the log.
        self.counted += observed is not None
        if observed is None or watermark.token != self._low:
            return
        self._low = None
        settled = [
            facts
            for facts in observed.tables
            if self._notes.is_settled(facts.table, observed.snapshot)
        ]
        fresh = []
        for facts in settled:
            if (yield from self._compare(facts)):
                fresh.append(facts.table)
        self.caught_up = len(settled) == len(observed.tables)
        if fresh:
            yield SnapshotWanted(tuple(fresh), SnapshotReason.INITIAL)
        yield from self._miss({facts.table for facts in observed.tables})

    def _take_round(self, token: str) -> CatalogRound | None:
        """Return the round of ``token``; those before it are dropped, for their watermarks have
        passed."""
        if token in self._rounds:
            while (first := next(iter(self._rounds))) != token:
                del self._rounds[first]
        return self._rounds.pop(token, None)

    def _compare(self, facts: TableFacts) -> Deciding[bool]:
        """Bring the table's state up to the catalog; return whether an initial dump is due."""
        table = facts.table
        if facts.problem is not None or facts.schema is None:
            reason = facts.problem or "it has no columns"
            yield from self._conditions.quarantine(
                table, reason=reason, hint=facts.hint, cause=CATALOG
            )
            return False
        if not facts.membership:
            return False  # It left the publication in this very round; the next one adds it again.
        state = self._state.tables.get(table)
        if state is None or state.schema is None:
            return (yield from self._first_seen(facts))
        quarantined = self._state.quarantined(table)
        if quarantined is not None:
            if quarantined == CATALOG:
                yield from self._return(facts, state)
            return False
        drifted = yield from self._drift(facts, state.catalog)
        yield from self._settle(facts, drifted)
        self._notes.compared(table)
        yield from self._blocks.restart(table)
        return False

    def _drift(self, facts: TableFacts, before: str | None) -> Deciding[str | None]:
        if before is None:
            return None
        if republished(before, facts):
            yield Joined(facts.table)
        return drift(
            before,
            facts,
            self._state.schemas,
            truncated=self._notes.only_truncated(facts),
            certain=self._tables.follows(facts),
        )

    def _settle(self, facts: TableFacts, reason: str | None) -> Effects:
        """Adopt the catalog's facts; ``reason``: why rows may differ all the same."""
        table = facts.table
        if facts.schema is not None:
            yield from self._conditions.adopt(facts.schema, facts)
            self._conditions.describe(facts.description)
        self._state.change_table(table, catalog=facts.catalog, numbers=facts.numbers)
        if reason is not None:
            since = self._notes.last_equal(table, self._state.last_seq)
            yield from self._conditions.doubt(table, since=since, reason=reason)
        self._notes.found_equal(table, self._state.last_seq)

    def _first_seen(self, facts: TableFacts) -> Deciding[bool]:
        """Take a table seen for the first time; return whether it is to be dumped."""
        yield Joined(facts.table)
        self._state.set_table(facts.table, TableState())
        yield from self._settle(facts, None)
        return self._beginnings.first_seen(facts.table)

    def _return(self, facts: TableFacts, state: TableState) -> Effects:
        """Capture a quarantined table again; a dump makes up for what was missed."""
        table, since = facts.table, state.since_seq
        yield Joined(table)
        yield from self._conditions.recapture(table, self._beginnings.here())
        yield from self._settle(facts, None)
        if state.was_removed or state.removed:
            yield from self._blocks.begin_again(table, BACK)
            return
        since = since if since is not None else self._state.last_seq
        reason = f"it was quarantined: {state.reason}"
        yield from self._conditions.doubt(table, since=since, reason=reason)

    def _miss(self, present: set[str]) -> Effects:
        """Note the tables as removed that two rounds in a row do not find.

        After one round, such a table may be in the middle of an ALTER.
        """
        self._notes.listed(present)
        absent = (self._state.tables.keys() | self._state.begun.keys()) - present
        again, self._missed = absent & self._missed, absent
        for table in again:
            self._state.forget_begun(table)
        self.caught_up &= absent == again
        for table in list(self._state.tables):
            if table in again:
                yield from self._conditions.quarantine(
                    table, reason=REMOVED, hint=None, cause=CATALOG
                )
