"""Judges the log's own information on tables: their columns, statements, truncates, gaps."""

from __future__ import annotations

from collections.abc import Iterable

from tideline.contract.manifest import SchemaEvent, Truncate
from tideline.contract.open_state import TableCondition
from tideline.contract.schema import Verdict, is_ours, parse_table
from tideline_capture.core.effects import Disturbed, Effects, Joined
from tideline_capture.core.events import GapSeen, SchemaSeen, StatementSeen, Truncated
from tideline_capture.core.state import CATALOG, CoreState
from tideline_capture.core.tables.beginnings import Beginnings
from tideline_capture.core.tables.conditions import Conditions
from tideline_capture.core.tables.notes import LogNotes
from tideline_capture.core.tables.states import TableStates

_STATEMENT_MAX = 10_000
"""Characters of a DDL statement that are kept."""


class LoggedTables:
    """Judges the log's controls that are about tables."""

    def __init__(
        self,
        state: CoreState,
        tables: TableStates,
        conditions: Conditions,
        beginnings: Beginnings,
        notes: LogNotes,
    ) -> None:
        self._state = state
        self._tables = tables
        self._conditions = conditions
        self._beginnings = beginnings
        self._notes = notes

    def described(self, seen: SchemaSeen) -> Effects:
        """Take the log's description of a table."""
        state, schema, table = self._state, seen.schema, seen.schema.table
        self._notes.schema_seen(table, seen.xid)
        reserved = [name for name in schema.column_names if is_ours(name)]
        known = state.schema(table)
        lost = not schema.key and known is not None and bool(known.key)
        if reserved or lost:
            self._conditions.observed.pop(table, None)
            state.forget_begun(table)
            if state.captures(table):
                reason = f"columns have names of ours: {', '.join(reserved)}"
                reason = reason if reserved else "it lost its key"
                yield from self._conditions.quarantine(
                    table, reason=reason, hint=None, cause=CATALOG
                )
            return
        self._conditions.observed[table] = schema
        if not state.captures(table):
            yield from self._beginnings.described(seen)
        if state.captures(table):
            another = self._tables.is_another(table, seen.oid)
            yield from self._conditions.adopt(schema, seen.facts)
            self._conditions.describe(seen.description)
            if another:
                yield from self._replaced(table)

    def _replaced(self, table: str) -> Effects:
        """Doubt a table that replaced another of its name.

        Older transactions may have changed it that the log never reports.
        """
        yield Joined(table)
        self._state.change_table(table, numbers=None)  # The columns are not those that had them.
        since, reason = self._state.last_seq, "the table was re-created"
        yield from self._conditions.doubt(table, since=since, reason=reason)

    def on_statement(self, seen: StatementSeen) -> Effects:
        """Record a DDL statement of the log, and doubt what it may have changed."""
        state = self._state
        self._notes.on_statement((*seen.tables, *((seen.schema,) if seen.schema else ())))
        self._beginnings.on_statement(seen)
        named = {table.lower() for table in seen.tables}
        for table in list(state.tables):
            of_schema = seen.schema and parse_table(table).schema.lower() == seen.schema.lower()
            if not of_schema and table.lower() not in named:
                continue
            self._notes.schema_changed(table)
            if state.schema(table) is not None and state.captures(table):
                yield from self._observed_steps(table, seen)

    def _observed_steps(self, table: str, seen: StatementSeen) -> Effects:
        """Take a statement that named ``table``, which is captured."""
        state = self._state
        seq = state.mint()
        known = self._tables.state_steps(table, seen.steps)
        neutral = seen.neutral and known
        verdict = Verdict.NEUTRAL if neutral else Verdict.DOUBTFUL
        text = seen.text if len(seen.text) <= _STATEMENT_MAX else seen.text[:_STATEMENT_MAX] + "…"
        form = state.tables[table].schema or ""
        state.record(SchemaEvent(seq, table, form, form, verdict.value, statement=text))
        # The next look at the catalog is not compared with the one before the statement.
        state.change_table(table, catalog=None)
        yield Disturbed(table, "a DDL statement")
        doubted = state.tables[table].condition is TableCondition.NEEDS_RESNAPSHOT
        if not neutral or (doubted and not state.requests.dumps_all(table)):
            reason = "a DDL statement may have changed its rows"
            yield from self._conditions.doubt(table, since=seq, reason=reason)

    def truncated(self, seen: Truncated) -> Effects:
        """Note that all rows of tables are gone."""
        for named in seen.tables:
            table = self._state.cased(named)
            if self._state.captures(table):
                self._state.record(Truncate(self._state.mint(), table, seen.xid))
                yield Disturbed(table, "a truncate")
                self._notes.truncated(table, seen.xid)

    def missed(self, gap: GapSeen) -> Effects:
        """Dump again what changes that are missing from the log may concern."""
        for table in list(self._state.begun) if gap.tables is None else gap.tables:
            self._state.forget_begun(table)
        tables = list(self._state.tables) if gap.tables is None else gap.tables
        yield from self._conditions.follow_up(tables, gap.reason)

    def cascaded(self, tables: Iterable[str]) -> Effects:
        """Doubt ``tables``, to which changes of other tables may have cascaded."""
        reason = "a change of another table may have cascaded to it"
        yield from self._conditions.follow_up(tables, reason)
