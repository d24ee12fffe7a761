"""Blocked tables: the target cannot take the table's schema, and only a dump starts it anew.

Starting a target anew throws its rows away, and nobody may find that done by accident. So a dump
does it only if it was asked for after the change came: by somebody, or by the worker where the
settings say that such changes are to be applied. Other dumps end as what they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tideline.contract.manifest import (
    OpenRequest,
    SchemaEvent,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.schema import Verdict
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.requests import FOLLOW_UP, OPEN, REREAD, UNPROVEN, OpenRequests

if TYPE_CHECKING:
    from tideline_capture.core.worker import Worker

INITIAL = "initial"
"""Begins the ids of the first dumps of tables."""
ANEW = "anew"
"""Begins the ids of dumps by which the worker itself starts targets anew."""
_OURS = tuple(f"{why}:" for why in (FOLLOW_UP, UNPROVEN))
OWN_IDS = (REREAD, *(f"{why}:" for why in (INITIAL, ANEW, FOLLOW_UP, UNPROVEN)))
"""Begin the ids of the worker's own requests: nobody else's mean what these do."""
PARTING = (StepKind.RETYPE, StepKind.KEY)
"""The steps that no target can take."""


class Blocks:
    """The blocked tables. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker) -> None:
        self._core = core

    def block(self, table: str, seq: int, reason: str, by: tuple[StepKind, ...]) -> None:
        """The target cannot pass the schema event at ``seq``, for steps of the kinds ``by``."""
        core = self._core
        core.tables.block(table, since=seq, reason=reason, by=by)
        state = core.tables.states[table]
        _settle_open(core.requests, table, state)
        core.draft.state_changed = True
        core.end_requests()
        self.start_anew(table)

    def start_anew(self, table: str) -> None:
        """Ask for the dump that a blocked table waits for, where the settings say so."""
        core = self._core
        state = core.tables.states[table]
        if state.condition is not TableCondition.BLOCKED or state.cause is not None:
            return
        wanted = self._follows(table, state) and not state.left_blocked
        if wanted and not core.requests.dumps_all(table, asked_since=_last(state)):
            core.intake.request_dump(ANEW, [table])

    def cancelled(self, request_id: str, tables: Iterable[str]) -> None:
        """A request was cancelled that dumped ``tables``. If it was to start their targets anew,
        whoever did that wants them left as they are, whatever the settings say: until the next
        change, they stay blocked until somebody asks for a dump."""
        for table in tables if request_id.startswith(f"{ANEW}:") else ():
            self._core.tables.leave_blocked(table)

    def _follows(self, table: str, state: TableState) -> bool:
        """Whether the settings say to start its target anew for all that it cannot take."""
        limits = self._core.limits
        if not state.blocked_by:
            return limits.dump_unproven
        return all(limits.applies(table, kind) for kind in state.blocked_by)

    def begin_again(self, table: str, reason: str) -> None:
        """Another table has taken the place of one that was gone: its target starts anew."""
        core = self._core
        form = core.tables.states[table].schema or ""
        verdict = Verdict.INCOMPATIBLE.value
        seq = core.sequencer.take(1)
        core.draft.schema_events.append(
            SchemaEvent(seq, table, form, form, verdict, changes=(reason,))
        )
        self.block(table, seq, reason, ())


def unblocks(item: OpenRequest, state: TableState) -> bool:
    """Whether the end of a dump of the whole of a blocked table starts its target anew. Before the
    first dump has ended there is nothing to lose."""
    request_id = item.request.request_id
    if request_id.startswith(_OURS):
        return False
    if request_id.startswith(f"{INITIAL}:") and state.complete_seq is None:
        return True
    last = _last(state)
    return last is not None and item.asked_seq >= last


def _last(state: TableState) -> int | None:
    """The last change that the target cannot pass."""
    return state.since_seq if state.blocked_seq is None else state.blocked_seq


def parted_by(steps: tuple[ColumnStep, ...]) -> tuple[StepKind, ...]:
    """The kinds of ``steps`` that no target can take."""
    return tuple(kind for kind in PARTING if any(step.kind is kind for step in steps))


def _settle_open(requests: OpenRequests, table: str, state: TableState) -> None:
    """What becomes of the open dumps of a table that was just blocked: those that start its target
    anew begin again, those of the worker's own that were to prove it, or to start it anew for an
    earlier change, end; others go on, and start nothing."""
    for item in requests.open:
        for dump in item.dumps:
            if dump.table != table or dump.state not in OPEN or not item.request.whole:
                continue
            request_id = item.request.request_id
            given_up = request_id.startswith((*_OURS, f"{ANEW}:"))
            if not given_up and unblocks(item, state):
                requests.update(request_id, TableDump(table))
            elif given_up:
                failed = replace(dump, state="failed", error=f"it is blocked: {state.reason}")
                requests.update(request_id, failed)
