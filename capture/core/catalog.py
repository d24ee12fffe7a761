"""Rounds over the source's catalog: new tables, lost ones, and changes that no row event reports.

A round reads the catalog between two of our marks, C and B. Tables whose schema the log changed,
or that it truncated, between those marks are left for the next round: what was read may be older
or newer than what the log says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from capture.core.drift import drift
from capture.core.events import CatalogRound, Mark, TableFacts
from capture.core.tables import CATALOG
from tideline.contract.manifest import TableCondition

if TYPE_CHECKING:
    from capture.core.worker import Worker

_ROUNDS_MAX = 32


class CatalogWatch:
    """The catalog side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self.seen_token: str | None = None
        """The token of the newest mark B that came back through the log."""
        self._core = core
        self._low: str | None = None
        self._moving: set[str] = set()
        self._truncated: set[str] = set()
        self._equal_at: dict[str, int] = {}
        self._rounds: dict[str, CatalogRound] = {}

    def on_round(self, observed: CatalogRound) -> None:
        """A round's result; it counts when its mark B comes through the log.

        While the log is far behind, the rounds that come through first are kept.
        """
        if len(self._rounds) < _ROUNDS_MAX:
            self._rounds[observed.token] = observed

    def on_low(self, mark: Mark) -> None:
        self._low = mark.token
        self._moving.clear()

    def on_high(self, mark: Mark) -> None:
        self.seen_token = mark.token
        observed = self._rounds.pop(mark.token, None)
        if observed is None or mark.token != self._low:
            return
        self._low = None
        fresh = [
            facts.table
            for facts in observed.tables
            if facts.table not in self._moving and self._compare(facts, observed)
        ]
        if fresh:
            self._core.request_dump("initial", fresh)
        self._miss({facts.table for facts in observed.tables})

    def schema_changed(self, table: str) -> None:
        self._moving.add(table)

    def truncated(self, table: str) -> None:
        self._moving.add(table)
        self._truncated.add(table)

    def last_equal(self, table: str, otherwise: int) -> int:
        """The last sequence at which the table was found equal to its catalog."""
        return self._equal_at.get(table, otherwise)

    def _compare(self, facts: TableFacts, observed: CatalogRound) -> bool:
        """Bring the table's state up to the catalog; whether an initial dump is due."""
        core, table = self._core, facts.table
        if facts.problem is not None or facts.schema is None:
            reason = facts.problem or "it has no columns"
            core.park(table, reason=reason, hint=facts.hint, cause=CATALOG)
            return False
        state = core.tables.states.get(table)
        if table in observed.joined:
            core.dumps.joined(table)
        if state is None or state.schema is None:
            return self._first_seen(facts)
        if state.condition is TableCondition.PARKED:
            if state.cause == CATALOG:
                self._return(facts, state.since_seq, state.reason)
            return False
        self._settle(facts, self._drift(facts, state.catalog, observed))
        self._truncated.discard(table)
        return False

    def _drift(self, facts: TableFacts, before: str | None, observed: CatalogRound) -> str | None:
        if facts.table in observed.joined:
            return "it was not published for a while"
        if before is None:
            return None
        truncated = facts.table in self._truncated
        return drift(before, facts, self._core.tables.schemas, truncated=truncated)

    def _settle(self, facts: TableFacts, reason: str | None) -> None:
        """Adopt what the catalog says; ``reason``: why rows may differ all the same."""
        core, table = self._core, facts.table
        if facts.schema is not None:
            core.adopt(facts.schema)
        news = core.tables.seen_equal(facts)
        if reason is not None:
            since = self.last_equal(table, core.sequencer.last)
            core.doubt(table, since=since, reason=reason)
        if news or reason is not None:
            core.draft.state_changed = True
        self._equal_at[table] = core.sequencer.last

    def _first_seen(self, facts: TableFacts) -> bool:
        """A table seen for the first time; whether it is to be dumped."""
        core = self._core
        before = core.tables.states.get(facts.table)
        if before is not None and before.condition is TableCondition.PARKED:
            del core.tables.states[facts.table]
        self._settle(facts, None)
        core.tables.begin(facts.table, core.durable_number)
        return core.limits.initial_dump

    def _return(self, facts: TableFacts, since: int | None, reason: str | None) -> None:
        """A parked table that can be captured again: a dump makes up for what was missed."""
        core = self._core
        core.dumps.joined(facts.table)
        core.unpark(facts.table)
        self._settle(facts, None)
        core.doubt(
            facts.table,
            since=since if since is not None else core.sequencer.last,
            reason=f"it was parked: {reason}",
        )

    def _miss(self, present: set[str]) -> None:
        for table in list(self._core.tables.states):
            if table not in present:
                self._core.park(
                    table,
                    reason="it is no longer in the source, or no longer in the table list",
                    hint=None,
                    cause=CATALOG,
                )
