"""Emits, retries or discards a chunk once its high watermark passes.

A chunk is emitted at H with sequences minted there. If its rows could be older than what the log
already contained, it is read again.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tideline.contract.answers import Circumstances
from tideline.contract.errors import Unavailable
from tideline.contract.open_state import OpenRequest, TableDump
from tideline_capture.core.chunks import (
    Chunk,
    ChunkEvent,
    ChunkFailed,
    ChunkOrder,
    ChunkRead,
    Waiting,
    WatermarksWritten,
)
from tideline_capture.core.effects import Effects, RereadWanted
from tideline_capture.core.events import Rows, Watermark
from tideline_capture.core.facts import Snapshot
from tideline_capture.core.snapshots.copies import Probe, snapshot_position
from tideline_capture.core.snapshots.dump_status import RETRY_DELAY_S, DumpStatus
from tideline_capture.core.snapshots.progress import DumpProgress
from tideline_capture.core.snapshots.scheduler import ChunkScheduler, InFlightChunk, outlived, stale
from tideline_capture.core.snapshots.verification import ChunkVerification
from tideline_capture.core.snapshots.window import ChunkCatalogs, ChunkWindow, moved_incomplete
from tideline_capture.core.state import CoreState
from tideline_capture.core.visibility import UnseenTransactions, VisibleSnapshots, invisible


class Dumps:
    """Judges chunks; ``token`` makes a fresh watermark token."""

    def __init__(self, state: CoreState, token: Callable[[], str]) -> None:
        self.unseen = UnseenTransactions(state.limits.unseen_transactions_max)
        self.scheduler = ChunkScheduler(state, self.unseen, token)
        self.progress = DumpProgress(state)
        self.redone = 0
        """Chunks that were read again, since the start."""
        self._state = state
        self._verification = ChunkVerification(state)
        self._catalogs = ChunkCatalogs(state)
        self._visible = VisibleSnapshots(self.unseen)
        self._status = DumpStatus(state, self.scheduler)

    # -- the log -------------------------------------------------------------------------------

    def on_low(self, watermark: Watermark) -> None:
        chunk, state = self.scheduler.find(watermark.token), self._state
        if chunk is None or chunk.window is not None:
            return  # A copy of the watermark, if any, comes after it and opens nothing.
        order = chunk.order
        chunk.window = ChunkWindow(order, self.unseen.at_low_watermark(), state.last_seq)
        chunk.window.catalogs = self._catalogs.of(order.table)
        if not order.fence and not self.unseen.complete:
            chunk.window.disturbed = "ids of unseen transactions were dropped after the order"
        self._visible.apply(self.scheduler.unmarked)
        dump = state.requests.dump(order.request_id, order.table)
        if dump is None or stale(order, dump) or dump.first_low_seq is not None:
            return
        begun = replace(
            dump,
            state="running",
            first_low_seq=state.last_seq,
            first_manifest=state.durable_number,
        )
        state.update_dump(order.request_id, begun)

    def saw_rows(self, rows: Rows) -> Effects:
        """Take rows of the log into account.

        A row that changes its key and does not carry all its values may leave an old key that no
        chunk has brought yet for a new one that no chunk will: read it again.
        """
        for window in self.scheduler.windows:
            window.saw_rows(rows)
        keys = moved_incomplete(rows)
        if keys and self._state.requests.dumping(rows.schema.table):
            yield RereadWanted(rows.schema.table, tuple(keys))

    def on_probe(self, watermark: Watermark) -> None:
        token, writer, number = watermark.token.rsplit(".", 2)
        chunk = self.scheduler.find(token)
        if chunk is not None and chunk.window is not None:
            chunk.window.pass_by(Probe(writer, int(number), self._state.last_seq))

    def on_unknown_watermark(self) -> None:
        for window in self.scheduler.windows:
            window.saw_unknown_watermark()

    def disturb(self, table: str, what: str) -> None:
        for window in self.scheduler.windows:
            window.saw_change_of(table, what)
        # A snapshot's rows that went or changed since cannot be separated from others.
        if self._state.keyless(table):
            self._state.restart_dumps(table)

    def on_high(self, watermark: Watermark, *, now: float) -> Effects:
        chunk = self.scheduler.find(watermark.token)
        if chunk is not None and chunk.high is None:
            chunk.high = watermark
            yield from self.settle(now=now)

    def settle(self, *, now: float) -> Effects:
        """Emit the chunks whose turn has come, and drop those whose turn will never come."""
        for chunk in self.scheduler.ready():
            window, fetched, high = chunk.window, chunk.fetched, chunk.high
            if window is not None and fetched is not None and high is not None:
                yield from self._judge(chunk, window, fetched, high, now=now)
            self.scheduler.pause(chunk.order.request_id, now)
        self._visible.apply(self.scheduler.unmarked)

    def expect_watermarks_before(self, heartbeat: str) -> None:
        """Note that a heartbeat is about to be written: behind all watermarks written so far."""
        for chunk in self.scheduler.in_flight:
            if chunk.written and chunk.before is None:
                chunk.before = heartbeat

    def on_heartbeat(self, watermark: Watermark) -> None:
        """Raise Unavailable for a high watermark that the heartbeat overtook: it will never
        come."""
        for chunk in self.scheduler.in_flight:
            if chunk.before == watermark.token and chunk.high is None:
                raise Unavailable(
                    f"the watermarks of a chunk of {chunk.order.table} were written to the"
                    " source, and"
                    " did not come through its log",
                    hint="`tideline doctor` shows whether the log leaves our watermarks out",
                )

    # -- other threads -------------------------------------------------------------------------

    def on_chunk(self, event: ChunkEvent, *, now: float) -> None:
        chunk = self.scheduler.find(event.token)
        if chunk is None:
            return
        if isinstance(event, Waiting):
            chunk.waiting = event.reason
        elif isinstance(event, WatermarksWritten):
            chunk.written = True
        elif isinstance(event, ChunkRead):
            chunk.read, chunk.waiting = event, None
            full = event.rows >= chunk.order.rows_max
            self.scheduler.governor.saw_chunk(
                chunk.order.table, event.rows, took_s=event.took_s, full=full
            )
        elif isinstance(event, Chunk):
            chunk.fetched = event
            self._status.goes_on(chunk.order.table)
            self.scheduler.release(chunk.order.table)
            self._show(event.snapshot, self.scheduler.unmarked - {chunk.order.token})
        else:
            self._failed(chunk, event, now=now)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._show(snapshot, self.scheduler.unmarked)

    def _show(self, snapshot: Snapshot, awaited: frozenset[str]) -> None:
        self._visible.show(snapshot, awaited)
        self._visible.apply(self.scheduler.unmarked)

    @property
    def copies(self) -> frozenset[str]:
        """The chunks whose snapshots are needed by copies of tables without a key.

        They are kept however late the next chunk may come. A paused copy's snapshot is not: it may
        take for ever, and keeps the source from cleaning up.
        """
        state = self._state
        scheduler = [one.order for one in self.scheduler.in_flight if one.order.keyless]
        read = {one.after_key[0] if one.after_key else one.token for one in scheduler}
        waiting = {
            dump.last_key[0]
            for item, dump in state.requests.due()
            if dump.last_key is not None and state.keyless(dump.table)
        }
        return frozenset(read | waiting)

    def circumstances(self, item: OpenRequest, *, now: float) -> Circumstances:
        """Return what holds an open request up, and its tables' rates."""
        return self._status.circumstances(item, now=now)

    # -- judgement -----------------------------------------------------------------------------

    def _judge(
        self,
        chunk: InFlightChunk,
        window: ChunkWindow,
        fetched: Chunk,
        watermark: Watermark,
        *,
        now: float,
    ) -> Effects:
        state, order = self._state, chunk.order
        if order.fence:
            self.unseen.fenced()
            self.scheduler.fenced(chunk)
        dump = state.requests.dump(order.request_id, order.table)
        if dump is None or stale(order, dump) or outlived(chunk, dump):
            return
        if order.keyless:
            yield from self._judge_copy(chunk, window, fetched, dump, watermark, now=now)
            return
        missed = self.scheduler.unfenced(order.table) or len(
            invisible(window.unseen, fetched.snapshot)
        )
        altered = self._catalogs.differs(window, fetched.facts)
        if window.disturbed or missed or altered:
            self._redo()
            return
        if order.verify:
            yield from self._verify(order, window.low_seq, fetched, dump, now=now)
            return
        if not (yield from self.progress.fits(order, fetched, dump)):
            return
        self.scheduler.emitted()
        dump = state.requests.dump(order.request_id, order.table) or dump
        self.progress.emit(order, window, fetched, watermark)
        self._status.note(order, fetched.batch.num_rows, now=now)
        yield from self._advance(order, fetched, dump)

    def _verify(
        self, order: ChunkOrder, low_seq: int, fetched: Chunk, dump: TableDump, *, now: float
    ) -> Effects:
        fits = self._verification.fits(order, fetched, dump)
        if fits is None:
            self.redone += 1
            self.scheduler.rest(order.table, now + RETRY_DELAY_S)
        if fits:
            self.scheduler.emitted()
            self._verification.keep(order, low_seq, fetched, dump)
            self._status.note(order, fetched.batch.num_rows, now=now)
            yield from self._advance(order, fetched, dump)

    def _judge_copy(
        self,
        chunk: InFlightChunk,
        window: ChunkWindow,
        fetched: Chunk,
        dump: TableDump,
        watermark: Watermark,
        *,
        now: float,
    ) -> Effects:
        """Judge a chunk of a table without a key.

        The first one finds its snapshot's place in the log, all others bring that snapshot's rows.
        """
        order = chunk.order
        if order.after_key is not None:
            if (yield from self.progress.fits(order, fetched, dump)):
                self.progress.emit(order, window, fetched, watermark)
                self._status.note(order, fetched.batch.num_rows, now=now)
                yield from self._advance(order, fetched, dump)
            return
        missed = self.scheduler.unfenced(order.table) or len(
            invisible(window.unseen, fetched.snapshot)
        )
        position = None
        if not (window.disturbed or missed):
            position = snapshot_position(
                window.events,
                fetched,
                low_seq=window.low_seq,
                high_seq=self._state.last_seq,
                probes=window.probes,
            )
        if position is None:
            self._status.delayed(
                order.table, "changes come too fast to find where a snapshot of it lies"
            )
            self._redo()
            return
        if (yield from self.progress.fits(order, fetched, dump)):
            self.scheduler.emitted()
            self._status.goes_on(order.table)
            positioned = replace(dump, first_low_seq=position.seq, seen=position.seen)
            yield from self._advance(order, fetched, positioned)

    def _advance(self, order: ChunkOrder, fetched: Chunk, dump: TableDump) -> Effects:
        if (yield from self.progress.advance(order, fetched, dump)):
            self._status.ended(order)

    def _redo(self) -> None:
        self.scheduler.redo()
        self.redone += 1

    def _failed(self, chunk: InFlightChunk, failed: ChunkFailed, *, now: float) -> None:
        state, order = self._state, chunk.order
        self.scheduler.end(chunk)
        if failed.restart and state.requests.dump(order.request_id, order.table) is not None:
            state.update_dump(order.request_id, TableDump(order.table))
            self._status.delayed(order.table, f"{failed.error}: its copy starts again")
            self.scheduler.rest(order.table, now + self._status.restart_delay_s(order.table))
            return
        moved = chunk.window is not None and chunk.window.disturbed is not None
        if failed.retry or moved:  # A table re-created since may not have been there yet.
            self._status.delayed(order.table, failed.error)
            self._redo()
            self.scheduler.rest(order.table, now + RETRY_DELAY_S)
            return
        dump = state.requests.dump(order.request_id, order.table)
        if dump is not None:
            text = failed.error if failed.hint is None else f"{failed.error}; {failed.hint}"
            ended = replace(dump, state="failed", error=text)
            state.update_dump(order.request_id, ended)
            state.end()
