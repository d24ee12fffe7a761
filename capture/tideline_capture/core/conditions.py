"""What becomes of a table: its schema in force, and whether it is captured, proven, merged.

Every step mints or states what a successor must know, in the segment that is being filled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tideline.contract.description import Description
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import CapturedFrom, SchemaEvent, TableCondition
from tideline.contract.schema import TableSchema, Verdict, is_reserved, parse_table
from tideline_capture.core.blocks import parted_by
from tideline_capture.core.events import WHOLE_ROW, GapSeen, SchemaSeen, StatementSeen, TableFacts
from tideline_capture.core.requests import FOLLOW_UP, UNPROVEN
from tideline_capture.core.tables import CATALOG, VALUE, Adopted

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

_STATEMENT_MAX = 10_000
"""Characters of a DDL statement that are kept."""


class Conditions:
    """The table side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self._core = core
        self._announced: dict[str, TableSchema] = {}

    def announced(self, seen: SchemaSeen) -> None:
        """The log describes a table."""
        core, schema = self._core, seen.schema
        table = schema.table
        core.catalog.schema_seen(table, seen.xid)
        reserved = [name for name in schema.column_names if is_reserved(name)]
        known = core.tables.schema(table)
        lost = not schema.key and known is not None and bool(known.key)
        if reserved or lost:
            self._announced.pop(table, None)
            core.beginnings.forget(table)
            if core.tables.captures(table):
                reason = f"columns have names of ours: {', '.join(reserved)}"
                reason = reason if reserved else "it lost its key"
                self.park(table, reason=reason, hint=None, cause=CATALOG)
            return
        self._announced[table] = schema
        if not core.tables.captures(table):
            core.beginnings.described(seen)
        if core.tables.captures(table):
            another = core.tables.is_another(table, seen.oid)
            self.adopt(schema, seen.facts)
            self.describe(seen.description)
            if another:
                self._replaced(table)

    def _replaced(self, table: str) -> None:
        """The log has rows of another table by that name: of its own, so that older transactions
        may have changed it that the log never tells of."""
        core = self._core
        core.dumps.orders.joined(table)
        core.tables.lose_numbers(table)
        self.doubt(table, since=core.sequencer.last, reason="the table was re-created")

    def describe(self, description: Description | None) -> None:
        """Note what the catalog says of a table's comments and NOT NULL, if it was asked."""
        core = self._core
        if description is not None and core.tables.describe(description):
            core.draft.descriptions.append(description)
            core.draft.state_changed = True

    def adopt(self, schema: TableSchema, facts: TableFacts | None = None) -> Adopted | None:
        """Mint the schema event that ``schema`` calls for, and do what its verdict demands.

        ``facts``: what the catalog said of just this schema, if it was asked.
        """
        core = self._core
        keyless = core.tables.keyless(schema.table)
        adopted = core.tables.adopt(schema, facts)
        if adopted is None:
            return None
        if keyless and schema.key:
            core.requests.restart(schema.table)  # Where a copy stands is no key.
        seq = core.sequencer.take(1)
        core.draft.schemas.append(schema)
        core.draft.schema_events.append(
            SchemaEvent(
                seq,
                schema.table,
                schema.fingerprint,
                adopted.before,
                adopted.verdict.value,
                adopted.changes,
                steps=adopted.steps,
            )
        )
        core.draft.state_changed = True
        core.dumps.disturb(schema.table, "a schema change")
        core.catalog.schema_changed(schema.table)
        what = ", ".join(adopted.changes)
        if adopted.verdict is Verdict.UNPROVEN:
            since = core.catalog.last_equal(schema.table, seq)
            self.doubt(schema.table, since=since, reason=f"schema change: {what}")
        elif adopted.verdict is Verdict.INCOMPATIBLE:
            by = parted_by(adopted.steps)
            core.blocks.block(schema.table, seq, f"incompatible change: {what}", by)
        if adopted.certain and facts is not None:
            core.dumps.progress.restate(facts)
        return adopted

    def stated(self, seen: StatementSeen) -> None:
        """The log holds a DDL statement: record it, and doubt what it may have changed."""
        core = self._core
        core.catalog.stated((*seen.tables, *((seen.schema,) if seen.schema else ())))
        core.beginnings.stated(seen)
        named = {table.lower() for table in seen.tables}
        for table in list(core.tables.states):
            of_schema = seen.schema and parse_table(table).schema.lower() == seen.schema.lower()
            if not of_schema and table.lower() not in named:
                continue
            schema = core.tables.schema(table)
            core.catalog.schema_changed(table)
            if schema is None or not core.tables.captures(table):
                continue
            seq = core.sequencer.take(1)
            told = core.tables.state_steps(table, seen.steps)
            neutral = seen.neutral and told
            verdict = Verdict.NEUTRAL if neutral else Verdict.UNPROVEN
            text = (
                seen.text if len(seen.text) <= _STATEMENT_MAX else seen.text[:_STATEMENT_MAX] + "…"
            )
            form = schema.fingerprint
            core.draft.schema_events.append(
                SchemaEvent(seq, table, form, form, verdict.value, statement=text)
            )
            core.draft.state_changed = True
            core.tables.restated(table)
            core.dumps.disturb(table, "a DDL statement")
            unproven = core.tables.states[table].condition is TableCondition.UNPROVEN
            if not neutral or (unproven and not core.requests.dumps_all(table)):
                self.doubt(table, since=seq, reason="a DDL statement may have changed its rows")

    def missed(self, gap: GapSeen) -> None:
        """Changes are missing from the log: what they may concern is dumped anew."""
        core = self._core
        for table in list(core.beginnings.begun) if gap.tables is None else gap.tables:
            core.beginnings.forget(table)
        self._follow_up(core.tables.states if gap.tables is None else gap.tables, gap.reason)

    def cascaded(self, tables: Iterable[str]) -> None:
        """Changes of other tables may have been carried over to ``tables``."""
        self._follow_up(tables, "a change of another table may have cascaded to it")

    def _follow_up(self, tables: Iterable[str], reason: str) -> None:
        """Rows of ``tables`` may have changed unseen. A dump that is under way goes on, or where
        this happens all the time none would ever end; another one follows it."""
        core = self._core
        due = []
        for table in [table for table in tables if core.tables.captures(table)]:
            if self._blocked(table) and not core.requests.dumps_all(table):
                continue  # Whatever dump starts its target anew will begin after this.
            core.tables.unprove(table, since=core.sequencer.last, reason=reason)
            core.draft.state_changed = True
            if not core.requests.awaits_dump(table):
                due.append(table)
        if due and core.limits.dump_unproven:
            core.intake.request_dump(FOLLOW_UP, due)

    def _blocked(self, table: str) -> bool:
        return self._core.tables.states[table].condition is TableCondition.BLOCKED

    def unpark(self, table: str, begun: CapturedFrom) -> None:
        """Capture ``table`` again, with the schema the log announced meanwhile."""
        core = self._core
        core.tables.unpark(table, begun)
        if table in self._announced:
            self.adopt(self._announced[table])

    def doubt(self, table: str, *, since: int, reason: str) -> None:
        """Mark ``table`` unproven and see to it that a delete-complete dump follows."""
        core = self._core
        core.tables.unprove(table, since=since, reason=reason)
        core.draft.state_changed = True
        restarted = core.requests.restart(table)
        if not restarted and core.limits.dump_unproven and not self._blocked(table):
            core.intake.request_dump(UNPROVEN, [table])

    def cancelled(self, tables: Iterable[str]) -> None:
        """Dumps of ``tables`` were cancelled. One that was to prove its table, besides what its
        asker wanted of it, is followed by one of ours; a table that never was complete is left."""
        core = self._core
        due = [
            table
            for table in tables
            if (state := core.tables.states.get(table)) is not None
            and state.condition is TableCondition.UNPROVEN
            and state.complete_seq is not None
            and not core.requests.dumps_all(table)
        ]
        if due and core.limits.dump_unproven:
            core.intake.request_dump(UNPROVEN, due)

    def park(self, table: str, *, reason: str, hint: str | None, cause: str) -> None:
        """Stop capturing ``table`` from the next sequence on."""
        core = self._core
        seq = core.sequencer.next
        if core.tables.park(table, seq=seq, reason=reason, hint=hint, cause=cause):
            core.draft.state_changed = True
            core.dumps.disturb(table, "the table was parked")
        self.fail_dumps(table, f"the table is parked: {reason}")

    def fail_dumps(self, table: str, error: str) -> None:
        """End every open dump of ``table`` with ``error``."""
        core = self._core
        if core.requests.fail_table(table, error):
            core.draft.state_changed = True
            core.end_requests()

    def park_value(self, table: str, column: str, seq: int) -> None:
        core = self._core
        if seq != core.sequencer.next:
            raise InvariantBroken(f"parking {table} between the rows of a batch")
        if column == WHOLE_ROW:
            self.park(
                table,
                reason="it has no key, and the log lacks the row before a change of it",
                hint="have whole rows logged, on PostgreSQL by ALTER TABLE … REPLICA IDENTITY FULL,"
                " and dump the table then",
                cause=VALUE,
            )
            return
        self.park(
            table,
            reason=f"key column {column} has a value that its type cannot hold",
            hint="change the value or the column's type, then dump the table",
            cause=VALUE,
        )
