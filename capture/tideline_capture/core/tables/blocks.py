"""Blocked tables: the target cannot take the table's schema, and only a dump restarts it.

Restarting a target throws its rows away, which must never come by surprise. So a dump does it only
if it was requested after the change came: by a user, or by the worker where the settings say that
such changes are to be applied. Other dumps end as what they were requested for.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tideline.contract.manifest import SchemaEvent
from tideline.contract.open_state import (
    OpenRequest,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.reasons import SnapshotReason, reason_of
from tideline.contract.schema import Verdict
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.effects import Effects, SnapshotWanted
from tideline_capture.core.open_requests import OPEN
from tideline_capture.core.state import CoreState
from tideline_capture.core.tables.states import TableStates

PARTING = (StepKind.RETYPE, StepKind.KEY)
"""The steps that no target can take."""
_ENDING_DOUBT = (SnapshotReason.FOLLOW_UP, SnapshotReason.DOUBT)


class Blocks:
    """Blocks tables, and has their targets restarted where the settings say so."""

    def __init__(self, state: CoreState, tables: TableStates) -> None:
        self._state = state
        self._tables = tables

    def block(self, table: str, seq: int, reason: str, by: tuple[StepKind, ...]) -> Effects:
        """Block ``table``: the target cannot pass the schema event at ``seq``, for steps ``by``."""
        self._tables.block(table, since=seq, reason=reason, by=by)
        self._settle_open(table)
        self._state.end()
        yield from self.restart(table)

    def restart(self, table: str) -> Effects:
        """Request the dump that a blocked table waits for, where the settings say so."""
        state = self._state.tables[table]
        if state.condition is not TableCondition.SCHEMA_BLOCKED or state.cause is not None:
            return
        wanted = self._follows(table, state) and not state.left_blocked
        if wanted and not self._state.requests.dumps_all(table, asked_since=_last(state)):
            yield SnapshotWanted((table,), SnapshotReason.RESTART)

    def cancelled(self, request_id: str, tables: Iterable[str]) -> None:
        """Note that a request was cancelled that dumped ``tables``.

        If it was to restart their targets, these are to be left as they are, whatever the settings
        say: until the next change, they stay blocked until a user requests a dump.
        """
        for table in tables if reason_of(request_id) is SnapshotReason.RESTART else ():
            self._state.change_table(table, left_blocked=True)

    def begin_again(self, table: str, reason: str) -> Effects:
        """Restart the target of a table that has taken the place of one that was gone."""
        form = self._state.tables[table].schema or ""
        verdict = Verdict.INCOMPATIBLE.value
        seq = self._state.mint()
        self._state.record(SchemaEvent(seq, table, form, form, verdict, changes=(reason,)))
        yield from self.block(table, seq, reason, ())

    def _follows(self, table: str, state: TableState) -> bool:
        """Return whether the settings allow its target's restart for all steps that it cannot
        take."""
        policy = self._state.policy
        if not state.blocked_by:
            return policy.doubted
        return all(policy.applies(table, kind) for kind in state.blocked_by)

    def _settle_open(self, table: str) -> None:
        """Settle the open dumps of a table that was just blocked.

        Those that restart its target begin again. Those of the worker's own that were to end a
        doubt, or to restart it for an earlier change, end. Others continue, and restart nothing.
        """
        state = self._state.tables[table]
        for item in self._state.requests.open:
            for dump in item.dumps:
                if dump.table != table or dump.state not in OPEN or not item.request.whole:
                    continue
                given_up = item.request.why in (*_ENDING_DOUBT, SnapshotReason.RESTART)
                if not given_up and unblocks(item, state):
                    self._state.update_dump(item.request.request_id, TableDump(table))
                elif given_up:
                    failed = replace(dump, state="failed", error=f"it is blocked: {state.reason}")
                    self._state.update_dump(item.request.request_id, failed)


def unblocks(item: OpenRequest, state: TableState) -> bool:
    """Return whether the end of a dump of the whole of a blocked table restarts its target.

    Before the first dump has ended there is nothing to lose.
    """
    if item.request.why in _ENDING_DOUBT:
        return False
    if item.request.why is SnapshotReason.INITIAL and state.complete_seq is None:
        return True
    last = _last(state)
    return last is not None and item.asked_seq >= last


def parted_by(steps: tuple[ColumnStep, ...]) -> tuple[StepKind, ...]:
    """Return the kinds of ``steps`` that no target can take."""
    return tuple(kind for kind in PARTING if any(step.kind is kind for step in steps))


def _last(state: TableState) -> int | None:
    """Return the last change that the target cannot pass."""
    return state.since_seq if state.blocked_seq is None else state.blocked_seq
