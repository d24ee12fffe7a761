"""Changes a table's schema in force, and whether it is captured, doubted, quarantined.

Every step mints or records what a successor must know, in the open segment.
"""

from __future__ import annotations

from collections.abc import Iterable

from tideline.contract.description import Description
from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import SchemaEvent
from tideline.contract.open_state import CapturedFrom, TableCondition
from tideline.contract.reasons import SnapshotReason
from tideline.contract.schema import TableSchema, Verdict
from tideline_capture.core.effects import (
    ColumnsFollowed,
    Deciding,
    Disturbed,
    Effects,
    SnapshotDone,
    SnapshotWanted,
)
from tideline_capture.core.events import WHOLE_ROW
from tideline_capture.core.facts import TableFacts
from tideline_capture.core.state import VALUE, CoreState
from tideline_capture.core.tables.blocks import Blocks, parted_by, unblocks
from tideline_capture.core.tables.notes import LogNotes
from tideline_capture.core.tables.states import Adopted, TableStates

_FOLLOW_UP, _DOUBT = SnapshotReason.FOLLOW_UP, SnapshotReason.DOUBT


class Conditions:
    """Changes conditions. ``observed`` are the schemas that the log described last."""

    def __init__(
        self, state: CoreState, tables: TableStates, blocks: Blocks, notes: LogNotes
    ) -> None:
        self.observed: dict[str, TableSchema] = {}
        self._state = state
        self._tables = tables
        self._blocks = blocks
        self._notes = notes

    def describe(self, description: Description | None) -> None:
        """Note the catalog's comments and NOT NULL of a table, if it was read."""
        if description is not None and self._tables.describe(description):
            self._state.describe(description)

    def adopt(
        self, schema: TableSchema, facts: TableFacts | None = None
    ) -> Deciding[Adopted | None]:
        """Mint the schema event that ``schema`` calls for, and do what its verdict demands.

        ``facts``: the catalog's view of just this schema, if it was read.
        """
        table, keyless = schema.table, self._state.keyless(schema.table)
        adopted = self._tables.adopt(schema, facts)
        if adopted is None:
            return None
        if keyless and schema.key:
            self._state.restart_dumps(table)  # A copy's place is no key.
        seq = self._state.mint()
        self._state.record(
            SchemaEvent(
                seq,
                table,
                schema.fingerprint,
                adopted.before,
                adopted.verdict.value,
                adopted.changes,
                steps=adopted.steps,
            )
        )
        yield Disturbed(table, "a schema change")
        self._notes.schema_changed(table)
        what = ", ".join(adopted.changes)
        if adopted.verdict is Verdict.DOUBTFUL:
            since = self._notes.last_equal(table, seq)
            yield from self.doubt(table, since=since, reason=f"schema change: {what}")
        elif adopted.verdict is Verdict.INCOMPATIBLE:
            by = parted_by(adopted.steps)
            yield from self._blocks.block(table, seq, f"incompatible change: {what}", by)
        if adopted.certain and facts is not None:
            yield ColumnsFollowed(facts)
        return adopted

    def follow_up(self, tables: Iterable[str], reason: str) -> Effects:
        """Doubt ``tables``, whose rows may have changed unseen.

        A dump in progress continues, or where this happens all the time none would ever end;
        another one follows it.
        """
        state, due = self._state, []
        for table in [table for table in tables if state.captures(table)]:
            if self._blocked(table) and not state.requests.dumps_all(table):
                continue  # Any dump that restarts its target will begin after this.
            self._tables.mark_doubted(table, since=state.last_seq, reason=reason)
            if not state.requests.awaits_dump(table):
                due.append(table)
        if due and state.policy.doubted:
            yield SnapshotWanted(tuple(due), _FOLLOW_UP)

    def recapture(self, table: str, begun: CapturedFrom) -> Effects:
        """Capture ``table`` again, with the schema that the log announced in the meantime."""
        self._tables.recapture(table, begun)
        if table in self.observed:
            yield from self.adopt(self.observed[table])

    def take_up(self, table: str) -> Effects:
        """Capture a table again that a value had quarantined: a dump of it is requested."""
        quarantined, state = self._state.tables[table], self._state
        since = quarantined.since_seq or state.next_seq
        yield from self.recapture(table, CapturedFrom(state.next_seq))
        self._tables.mark_doubted(table, since=since, reason=quarantined.reason or "")

    def doubt(self, table: str, *, since: int, reason: str) -> Effects:
        """Note that ``table`` needs a resnapshot; ensure that a delete-complete dump follows."""
        self._tables.mark_doubted(table, since=since, reason=reason)
        restarted = self._state.restart_dumps(table)
        if not restarted and self._state.policy.doubted and not self._blocked(table):
            yield SnapshotWanted((table,), _DOUBT)

    def cancelled(self, requests: Iterable[tuple[str, tuple[str, ...]]]) -> Effects:
        """Follow up dumps of these tables that were cancelled, by request.

        One that was also to end a doubt of its table is followed by one of ours; a table that never
        was complete is left.
        """
        state, tables = self._state, dict[str, None]()
        for request_id, ended in requests:
            self._blocks.cancelled(request_id, ended)
            tables.update(dict.fromkeys(ended))
        due = [
            name
            for name in tables
            if (table := state.tables.get(name)) is not None
            and table.condition is TableCondition.NEEDS_RESNAPSHOT
            and table.complete_seq is not None
            and not state.requests.dumps_all(name)
        ]
        if due and state.policy.doubted:
            yield SnapshotWanted(tuple(due), _DOUBT)

    def quarantine(self, table: str, *, reason: str, hint: str | None, cause: str) -> Effects:
        """Stop capturing ``table`` from the next sequence on."""
        seq = self._state.next_seq
        if self._tables.quarantine(table, seq=seq, reason=reason, hint=hint, cause=cause):
            yield Disturbed(table, "the table was quarantined")
        self._state.fail_table(table, f"the table is quarantined: {reason}")

    def quarantine_value(self, table: str, column: str, seq: int) -> Effects:
        """Quarantine a table of which a batch has a key value, or a row, that no part can hold."""
        if seq != self._state.next_seq:
            raise InvariantBroken(f"quarantining {table} between the rows of a batch")
        reason = f"key column {column} has a value that its type cannot hold"
        hint = "change the value or the column's type, then dump the table"
        if column == WHOLE_ROW:
            reason = "it has no key, and the log lacks the row before a change of it"
            how = self._state.policy.whole_rows
            by = f", by {how}," if how else ""
            hint = f"have whole rows logged{by} and dump the table then"
        yield from self.quarantine(table, reason=reason, hint=hint, cause=VALUE)

    def dumped(self, done: SnapshotDone) -> None:
        """Take the end of a delete-complete dump: it may end the table's doubts, and unblock it.

        A blocked table is unblocked if the dump restarts its target.
        """
        table, dump, state = done.dump.table, done.dump, self._state
        low_seq = dump.first_low_seq or 0
        if done.catalog is not None:
            # What changed before the first chunk is in the dump: no round need request another.
            state.change_table(table, catalog=done.catalog)
        blocked = self._blocked(table)
        if blocked and not unblocks(done.request, state.tables[table]):
            return
        # It began before changes that are in doubt, and another one is to settle them.
        followed = state.requests.awaits_dump(table, _FOLLOW_UP)
        if blocked or not followed:
            self._tables.resnapshotted(
                table,
                first_low_seq=low_seq,
                first_manifest=dump.first_manifest or 0,
                last_seq=state.last_seq,
            )
        if blocked and followed:
            reason = "changes that the log does not show came during its dump"
            self._tables.mark_doubted(table, since=low_seq, reason=reason)

    def _blocked(self, table: str) -> bool:
        return self._state.tables[table].condition is TableCondition.SCHEMA_BLOCKED
