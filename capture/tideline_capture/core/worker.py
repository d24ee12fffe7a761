"""The state machine that joins log, windows, dumps, catalog and requests into segments.

One thread drives it. What the log says comes through `on_batch`, what other threads found through
the other ``on_…`` methods; `next_order`, `seal` and `spill` say what to do next. Everything that
must survive is in the segment handed out: a core that is built anew from the chain's tail goes on
from there.
"""

from __future__ import annotations

from collections.abc import Callable

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import (
    RECENT_ANSWERS_MAX,
    Manifest,
    OpenState,
    Truncate,
)
from tideline.contract.request import Answer
from tideline.contract.schema import TableSchema
from tideline_capture.core.beginnings import Beginnings
from tideline_capture.core.blocks import Blocks
from tideline_capture.core.catalog import CatalogWatch
from tideline_capture.core.commands import Commands
from tideline_capture.core.conditions import Conditions
from tideline_capture.core.draft import Draft, Sealed, Spill
from tideline_capture.core.dumps import Dumps
from tideline_capture.core.events import (
    CascadeSeen,
    CatalogRound,
    ChunkOrder,
    Control,
    HeldSeen,
    Limits,
    LogBatch,
    Mark,
    MarkKind,
    Rows,
    SchemaSeen,
    Snapshot,
    SourceLoad,
    StatementSeen,
    StrangeMark,
    Told,
    Truncated,
    Unreadable,
)
from tideline_capture.core.intake import Intake
from tideline_capture.core.requests import OpenRequests, answer_of
from tideline_capture.core.roller import Roll, flush_due, roll
from tideline_capture.core.sequencer import Sequencer
from tideline_capture.core.source_clock import SourceClock
from tideline_capture.core.tables import Tables


class Worker:
    """The core. ``token`` makes a fresh mark token; ``durable_number`` is set by the runtime to the
    number of the newest durable manifest."""

    def __init__(
        self,
        tail: Manifest,
        state: OpenState,
        schemas: dict[str, TableSchema],
        *,
        limits: Limits,
        token: Callable[[], str],
    ) -> None:
        self.limits = limits
        self.position = tail.position
        self.clock = SourceClock(tail.through_us)
        self.identity = tail.identity
        self.durable_number = tail.manifest_number
        self.in_transaction = False
        self.last_change_at: float | None = None
        self.strange_marks = 0
        """Of the log behind our own first mark: what was made to look like one, and is none."""
        self._heard_own = False
        self.sequencer = Sequencer(tail.last_seq)
        self.tables = Tables(state.tables, schemas)
        self.held = dict(state.held)
        self.requests = OpenRequests(state, RECENT_ANSWERS_MAX)
        self.draft = Draft(self.sequencer.next)
        self.dumps = Dumps(self, token)
        self.catalog = CatalogWatch(self)
        self.conditions = Conditions(self)
        self.beginnings = Beginnings(self, state.begun)
        self.blocks = Blocks(self)
        self.intake = Intake(self, token)
        self.commands = Commands(self)
        self._moved_at: float | None = None
        self._forget_copies()

    def _forget_copies(self) -> None:
        """A table without a key is copied in one snapshot, which ended with the session before."""
        for item in self.requests.open:
            for dump in item.dumps:
                if dump.first_low_seq is not None and self.tables.keyless(dump.table):
                    self.draft.state_changed |= self.requests.restart(dump.table)

    # -- what the log says ---------------------------------------------------------------------

    def on_batch(self, batch: LogBatch, *, now: float, since: float | None = None) -> None:
        """Take what was read; its rows were sequenced from `sequencer.next`.

        ``since``: when the oldest of it was received; the segment's age counts from there.
        """
        first = self.sequencer.next
        for table, column in batch.unholdable:
            self.conditions.park_value(table, column, first)
        self.sequencer.take(batch.changes)
        for rows in batch.rows:
            self.emit(rows)
        if batch.changes:
            self.last_change_at = now
            if self.draft.opened_at is None:
                self.draft.opened_at = now if since is None else since
        self.dumps.unseen.committed(batch.transactions)
        self.in_transaction = batch.in_transaction
        for control in batch.controls:
            self._on_control(control, now=now)
        if batch.boundary is not None and batch.boundary.position != self.position:
            self.position = batch.boundary.position
            self._moved_at = now if self._moved_at is None else self._moved_at

    def _on_control(self, control: Control, *, now: float) -> None:
        if isinstance(control, Mark):
            self._heard_own = True
            self._on_mark(control, now=now)
        elif isinstance(control, StrangeMark):
            # Before our own first one are those of the session before.
            self.strange_marks += self._heard_own
            self.dumps.on_strange_mark()
        elif isinstance(control, SchemaSeen):
            self.conditions.announced(control)
        elif isinstance(control, Unreadable):
            self.beginnings.forget(control.table)
        elif isinstance(control, Truncated):
            self._on_truncated(control)
        elif isinstance(control, StatementSeen):
            self.conditions.stated(control)
        elif isinstance(control, HeldSeen):
            self._on_held(control)
        elif isinstance(control, CascadeSeen):
            self.conditions.cascaded(control.tables)
        else:
            self.conditions.missed(control)

    def _on_truncated(self, control: Truncated) -> None:
        for named in control.tables:
            table = self.tables.cased(named)
            if self.tables.captures(table):
                self.draft.truncates.append(Truncate(self.sequencer.take(1), table))
                self.dumps.disturb(table, "a truncate")
                self.catalog.truncated(table, control.xid)

    def _on_held(self, control: HeldSeen) -> None:
        self.draft.state_changed = True
        if control.position is None:
            self.held.pop(control.xid, None)
        else:
            self.held[control.xid] = control.position

    def _on_mark(self, control: Mark, *, now: float) -> None:
        if control.kind is MarkKind.LOW:
            self.dumps.on_low(control)
        elif control.kind is MarkKind.HIGH:
            self.dumps.on_high(control, now=now)
        elif control.kind is MarkKind.PULSE:
            self.dumps.on_pulse(control)
        elif control.kind is MarkKind.CATALOG_LOW:
            self.catalog.on_low(control)
        else:
            self.clock.on_heartbeat(control)
            # A heartbeat that is not written to the log leaves the position where it is.
            self._moved_at = now if self._moved_at is None else self._moved_at
            self.dumps.on_heartbeat(control)
            self.catalog.on_high(control)
            self.intake.look_again()

    def emit(self, rows: Rows) -> None:
        """Add sequenced rows to the segment."""
        if rows.schema.fingerprint not in self.tables.schemas:
            raise InvariantBroken(f"rows of {rows.schema.table} came before their schema")
        self.dumps.saw_rows(rows)
        self.draft.add(rows)

    # -- requests ------------------------------------------------------------------------------

    def end_requests(self) -> None:
        """Hand requests that ended to the segment."""
        for answer in self.requests.take_ended():
            self.draft.finished.append(answer)
            self.draft.urgent = self.draft.state_changed = True

    def on_durable(self, manifest: Manifest) -> None:
        """``manifest``, and with it all that was handed over before it, is durable."""
        self.durable_number = manifest.manifest_number
        self.requests.durable(manifest.finished)

    def answers(self, *, now: float) -> list[Answer]:
        """How every open request stands at ``now``; only durable steps are to be told as such."""
        return [
            answer_of(item, self.dumps.circumstances(item, now=now)) for item in self.requests.open
        ]

    # -- what other threads found --------------------------------------------------------------

    def on_chunk(self, told: Told, *, now: float) -> None:
        self.dumps.on_chunk(told, now=now)

    def on_catalog(self, observed: CatalogRound) -> None:
        """A look at the catalog, whose last mark will be written after this."""
        self.clock.on_round(observed)
        self.dumps.expect_marks_before(observed.token)
        self.catalog.on_round(observed)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.dumps.on_snapshot(snapshot)

    def on_load(self, load: SourceLoad, *, now: float) -> None:
        self.dumps.orders.governor.saw_load(load, now=now)

    # -- what to do next -----------------------------------------------------------------------

    def next_order(self, *, now: float) -> ChunkOrder | None:
        """The next chunk to read; None while one is under way, or nothing is to be dumped."""
        self.dumps.settle(now=now)
        return self.dumps.orders.next(now=now)

    def flush_due(self, *, now: float, buffered_since: float | None) -> bool:
        return flush_due(self.draft, self.limits, now=now, buffered_since=buffered_since)

    def spill(self, *, now: float) -> Spill | None:
        """Rows to upload before their transaction has ended."""
        if self._roll(now) is not Roll.SPILL:
            return None
        self.draft.spilled = True
        schemas = tuple(self.draft.schemas)
        return Spill(self.draft.take_rows(), schemas)

    def seal(self, *, now: float, force: bool = False) -> Sealed | None:
        """Close the segment if it is due, or if ``force`` and anything is in it."""
        forced = force and not self.in_transaction and (self.draft.has_content() or self._moved_at)
        if not forced and self._roll(now) is not Roll.CLOSE:
            return None
        draft = self.draft
        self.draft = Draft(self.sequencer.next)
        self._moved_at = None
        return Sealed(
            draft.first_seq,
            self.sequencer.last,
            self.position,
            self.clock.time_us,
            draft.take_rows(),
            tuple(draft.schemas),
            tuple(draft.schema_events),
            tuple(draft.truncates),
            tuple(draft.floors),
            tuple(draft.accepted),
            tuple(draft.finished),
            tuple(draft.refused),
            self.open_state(),
            draft.state_changed,
            tuple(draft.messages),
            self.identity,
            tuple(draft.checks),
            tuple(draft.descriptions),
        )

    def open_state(self) -> OpenState:
        return OpenState(
            self.requests.open,
            dict(self.tables.states),
            self.requests.recent,
            dict(self.held),
            self.requests.paused,
            self.requests.chunk_rows,
            self.requests.delay_ms,
            dict(self.beginnings.begun),
        )

    def idle(self) -> bool:
        """Nothing is open: no request, nothing in the segment that a reader would miss, no table
        that is still to be looked at."""
        open_work = len(self.requests) or self.draft.has_content()
        return self.catalog.caught_up and not open_work

    def _roll(self, now: float) -> Roll:
        if self.draft.opened_at is None and self.draft.has_content():
            self.draft.opened_at = now
        return roll(
            self.draft,
            self.limits,
            now=now,
            in_transaction=self.in_transaction,
            moved_at=self._moved_at,
        )
