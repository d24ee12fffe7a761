"""The state machine that joins log, windows, dumps, catalog and requests into segments.

One thread drives it. Log batches come through `on_batch`, other threads' results through the other
``on_…`` methods; `next_order`, `close_segment` and `flush_partial` return what to do next. What
must survive is in the segment handed out: a core that is built from the chain's tail continues from
there.

The worker decides nothing. It knows which decider an event is for, and hands on the effects that
deciders yield; these know the state alone, and not each other's folders.
"""

from __future__ import annotations

from collections.abc import Callable

from tideline.contract.answers import answer_of
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.request import Answer
from tideline.contract.schema import TableSchema
from tideline_capture.core import effects
from tideline_capture.core.chunks import ChunkEvent, ChunkOrder
from tideline_capture.core.effects import Deciding, Decision, Effect, Effects
from tideline_capture.core.events import (
    Arrival,
    CascadeSeen,
    CommandArrived,
    Control,
    GapSeen,
    LogBatch,
    PreparedSeen,
    RequestArrived,
    SchemaSeen,
    StatementSeen,
    Truncated,
    UnknownWatermark,
    Unreadable,
    Watermark,
    WatermarkKind,
)
from tideline_capture.core.facts import CatalogRound, Snapshot, SourceLoad
from tideline_capture.core.limits import CoreLimits, DumpPolicy
from tideline_capture.core.requests.commands import Commands
from tideline_capture.core.requests.intake import Intake
from tideline_capture.core.segment import PartialFlush, Roll, Segment, flush_due, roll
from tideline_capture.core.snapshots.dumps import Dumps
from tideline_capture.core.state import CoreState
from tideline_capture.core.tables.beginnings import Beginnings
from tideline_capture.core.tables.blocks import Blocks
from tideline_capture.core.tables.catalog import SeenRounds
from tideline_capture.core.tables.conditions import Conditions
from tideline_capture.core.tables.logged import LoggedTables
from tideline_capture.core.tables.notes import LogNotes
from tideline_capture.core.tables.states import TableStates


class Worker:
    """The core. ``token`` makes a fresh watermark token."""

    def __init__(
        self,
        tail: Manifest,
        state: OpenState,
        schemas: dict[str, TableSchema],
        *,
        limits: CoreLimits,
        policy: DumpPolicy,
        token: Callable[[], str],
    ) -> None:
        self.state = CoreState(tail, state, schemas, limits, policy)
        self.in_transaction = False
        self.last_change_at: float | None = None
        self.unknown_watermarks = 0
        """Entries of the log behind our own first watermark that look like one, and are none."""
        self._heard_own = False
        self._moved_at: float | None = None
        tables, notes = TableStates(self.state), LogNotes()
        blocks = Blocks(self.state, tables)
        self.conditions = Conditions(self.state, tables, blocks, notes)
        beginnings = Beginnings(self.state, self.conditions, blocks, notes)
        self._logged = LoggedTables(self.state, tables, self.conditions, beginnings, notes)
        self.catalog = SeenRounds(self.state, tables, self.conditions, blocks, beginnings, notes)
        self.dumps = Dumps(self.state, token)
        self.intake = Intake(self.state, token)
        self._commands = Commands(self.state, self.intake)
        self._forget_copies()

    def _forget_copies(self) -> None:
        """Forget copies in progress: their snapshots ended with the session before."""
        for item in self.state.requests.open:
            for dump in item.dumps:
                if dump.first_low_seq is not None and self.state.keyless(dump.table):
                    self.state.restart_dumps(dump.table)

    # -- effects -------------------------------------------------------------------------------

    def run(self, deciding: Deciding[Decision]) -> Decision:
        """Let a decider decide; each of its effects is carried out before it continues."""
        while True:
            try:
                effect = next(deciding)
            except StopIteration as end:
                decision: Decision = end.value
                return decision
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, effects.Disturbed):
            self.dumps.disturb(effect.table, effect.what)
        elif isinstance(effect, effects.Joined):
            self.dumps.scheduler.joined(effect.table)
        elif isinstance(effect, effects.ColumnsFollowed):
            self.dumps.progress.columns_followed(effect.facts)
        elif isinstance(effect, effects.SnapshotWanted):
            self.intake.snapshot_wanted(effect)
        elif isinstance(effect, effects.RereadWanted):
            self.run(self.intake.reread_wanted(effect))
        elif isinstance(effect, effects.SnapshotDone):
            self.conditions.dumped(effect)
        else:
            self.run(self._of_tables(effect))

    def _of_tables(self, effect: effects.OfTables) -> Deciding[object]:
        conditions = self.conditions
        if isinstance(effect, effects.SchemaRead):
            return conditions.adopt(effect.schema, effect.facts)
        if isinstance(effect, effects.Unfit):
            return conditions.quarantine(
                effect.table, reason=effect.reason, hint=effect.hint, cause=effect.cause
            )
        if isinstance(effect, effects.Doubted):
            return conditions.doubt(effect.table, since=effect.since, reason=effect.reason)
        if isinstance(effect, effects.Cancelled):
            return conditions.cancelled(effect.tables)
        return conditions.take_up(effect.table)

    # -- what the log says ---------------------------------------------------------------------

    def on_batch(self, batch: LogBatch, *, now: float, since: float | None = None) -> None:
        """Take a log batch; its rows were sequenced from ``state.next_seq``.

        ``since``: when the oldest of it was received; the segment's age counts from there.
        """
        state, first = self.state, self.state.next_seq
        for table, column in batch.unholdable:
            self.run(self.conditions.quarantine_value(table, column, first))
        state.mint(batch.changes)
        for rows in batch.rows:
            self.run(self.dumps.saw_rows(rows))
            state.emit(rows)
        for messages in batch.messages:
            state.emit_messages(messages)
        if batch.changes:
            self.last_change_at = now
            state.begin_segment(now if since is None else since)
        self.dumps.unseen.committed(batch.transactions)
        self.in_transaction = batch.in_transaction
        for control in batch.controls:
            self._on_control(control, now=now)
        if batch.boundary is not None and batch.boundary.position != state.position:
            state.move(batch.boundary.position)
            self._moved_at = now if self._moved_at is None else self._moved_at

    def _on_control(self, control: Control, *, now: float) -> None:
        if isinstance(control, Watermark):
            self._heard_own = True
            self._on_watermark(control, now=now)
        elif isinstance(control, UnknownWatermark):
            # Before our own first one are those of the session before.
            self.unknown_watermarks += self._heard_own
            self.dumps.on_unknown_watermark()
        elif isinstance(control, PreparedSeen):
            self.state.hold(control.xid, control.position)
        elif isinstance(control, Unreadable):
            self.state.forget_begun(control.table)
        else:
            self.run(self._on_tables(control))

    def _on_tables(
        self, control: SchemaSeen | Truncated | StatementSeen | CascadeSeen | GapSeen
    ) -> Effects:
        if isinstance(control, SchemaSeen):
            return self._logged.described(control)
        if isinstance(control, Truncated):
            return self._logged.truncated(control)
        if isinstance(control, StatementSeen):
            return self._logged.on_statement(control)
        if isinstance(control, CascadeSeen):
            return self._logged.cascaded(control.tables)
        return self._logged.missed(control)

    def _on_watermark(self, control: Watermark, *, now: float) -> None:
        if control.kind is WatermarkKind.LOW:
            self.dumps.on_low(control)
        elif control.kind is WatermarkKind.HIGH:
            self.run(self.dumps.on_high(control, now=now))
        elif control.kind is WatermarkKind.PROBE:
            self.dumps.on_probe(control)
        elif control.kind is WatermarkKind.CATALOG_LOW:
            self.catalog.on_low(control)
        else:
            self.state.clock.on_heartbeat(control)
            # A heartbeat that is not written to the log leaves the position where it is.
            self._moved_at = now if self._moved_at is None else self._moved_at
            self.dumps.on_heartbeat(control)
            self.run(self.catalog.on_high(control))
            self.run(self.intake.look_again(self.catalog.counted))

    # -- requests ------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Continue with requests that were left."""
        self.run(self.intake.begin_turn())

    def on_arrival(self, arrived: Arrival) -> Answer | None:
        """Take a message of the queue; return an answer when it need not wait for a manifest."""
        if isinstance(arrived, RequestArrived):
            return self.run(self.intake.on_request(arrived))
        if isinstance(arrived, CommandArrived):
            return self.run(self._commands.on_command(arrived))
        self.intake.on_refused(arrived)
        return None

    def answers(self, *, now: float) -> list[Answer]:
        """Return the state of every open request at ``now``; only durable steps may be reported as
        such."""
        return [
            answer_of(item, self.dumps.circumstances(item, now=now))
            for item in self.state.requests.open
        ]

    # -- what other threads found --------------------------------------------------------------

    def on_chunk(self, event: ChunkEvent, *, now: float) -> None:
        self.dumps.on_chunk(event, now=now)

    def on_catalog(self, observed: CatalogRound) -> None:
        """Take a look at the catalog, whose last watermark will be written after this."""
        self.state.clock.on_round(observed)
        self.dumps.expect_watermarks_before(observed.token)
        self.catalog.on_round(observed)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.dumps.on_snapshot(snapshot)

    def on_load(self, load: SourceLoad, *, now: float) -> None:
        self.dumps.scheduler.governor.saw_load(load, now=now)

    # -- what to do next -----------------------------------------------------------------------

    def next_order(self, *, now: float) -> ChunkOrder | None:
        """Return the next chunk to read; None while one is in progress, or nothing is to be
        dumped."""
        self.run(self.dumps.settle(now=now))
        return self.dumps.scheduler.next(now=now)

    def flush_due(self, *, now: float, buffered_since: float | None) -> bool:
        limits = self.state.limits
        return flush_due(self.state.segment, limits, now=now, buffered_since=buffered_since)

    def flush_partial(self, *, now: float) -> PartialFlush | None:
        """Return rows to upload before their transaction has ended."""
        return self.state.flush_partial() if self._roll(now) is Roll.FLUSH else None

    def close_segment(self, *, now: float, force: bool = False) -> Segment | None:
        """Close the segment if it is due, or if ``force`` and anything is in it."""
        forced = force and not self.in_transaction and (self.state.has_content() or self._moved_at)
        if not forced and self._roll(now) is not Roll.CLOSE:
            return None
        self._moved_at = None
        return self.state.close_segment()

    def idle(self) -> bool:
        """Say whether nothing is open.

        No request, nothing in the segment that a reader would miss, no table that is still to be
        looked at.
        """
        open_work = len(self.state.requests) or self.state.has_content()
        return self.catalog.caught_up and not open_work

    def _roll(self, now: float) -> Roll:
        has_content = self.state.has_content()
        if has_content:
            self.state.begin_segment(now)
        return roll(
            self.state.segment,
            self.state.limits,
            now=now,
            has_content=has_content,
            in_transaction=self.in_transaction,
            moved_at=self._moved_at,
        )
