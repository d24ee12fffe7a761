"""Dumps: what becomes of a chunk when its high mark passes.

A chunk is emitted at H with sequences minted there; everything that could make its rows older than
what the log already said leads to reading it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from capture.core.blocks import unblocks
from capture.core.catalogs import Catalogs
from capture.core.checks import Checks
from capture.core.copies import Pulse, place_of
from capture.core.drift import restated_columns
from capture.core.emit import dump_rows, missing_rows
from capture.core.events import (
    Chunk,
    ChunkFailed,
    ChunkOrder,
    ChunkRead,
    Mark,
    MarksWritten,
    Rows,
    Snapshot,
    TableFacts,
    Told,
    Waiting,
)
from capture.core.orders import Orders, Reading, stale
from capture.core.rates import Rates
from capture.core.requests import FOLLOW_UP, Circumstances
from capture.core.tables import CATALOG, VALUE
from capture.core.visibility import UnseenTransactions, invisible
from capture.core.window import Window, moved_incomplete, settle, untouched
from tideline.contract.errors import InvariantBroken, Unavailable
from tideline.contract.manifest import Copied, Floor, OpenRequest, TableCondition, TableDump

if TYPE_CHECKING:
    from capture.core.worker import Worker

RETRY_DELAY_S = 1.0
"""Between a chunk that could not be read (a lock, a fence) and the table's next try; other tables
go on meanwhile."""


class Dumps:
    """The dump side of the core. ``core`` is the worker it is part of."""

    def __init__(self, core: Worker, token: Callable[[], str]) -> None:
        self.unseen = UnseenTransactions(core.limits.unseen_transactions_max)
        self.orders = Orders(core, self.unseen, token)
        self._checks = Checks(core)
        self._catalogs = Catalogs(core)
        self.redone = 0
        """Chunks that were read again, since the start."""
        self._core = core
        self._shown: list[tuple[Snapshot, frozenset[str]]] = []
        self._begun_with: dict[tuple[str, str], str] = {}
        self._trouble: dict[str, str] = {}
        self._rates = Rates()

    # -- the log -------------------------------------------------------------------------------

    def on_low(self, mark: Mark) -> None:
        reading, core = self.orders.find(mark.token), self._core
        if reading is None:
            return
        order = reading.order
        reading.window = Window(order, self.unseen.at_low_mark(), core.sequencer.last)
        reading.window.catalogs = self._catalogs.of(order.table)
        if not order.fence and not self.unseen.complete:
            reading.window.disturbed = "ids of unseen transactions were dropped after the order"
        self._apply_shown()
        dump = core.requests.dump(order.request_id, order.table)
        if dump is None or stale(order, dump) or dump.first_low_seq is not None:
            return
        begun = replace(
            dump,
            state="running",
            first_low_seq=core.sequencer.last,
            first_manifest=core.durable_number,
        )
        core.requests.update(order.request_id, begun)
        core.draft.state_changed = True

    def saw_rows(self, rows: Rows) -> None:
        """Rows of the log. One that changes its key and does not carry all its values may leave
        an old key that no chunk has brought yet for a new one that no chunk will: read it again."""
        for window in self._windows:
            window.saw_rows(rows)
        keys = moved_incomplete(rows)
        if keys and self._core.requests.dumping(rows.schema.table):
            self._core.intake.reread(rows.schema.table, keys)

    def on_pulse(self, mark: Mark) -> None:
        token, lane, number = mark.token.rsplit(".", 2)
        reading = self.orders.find(token)
        if reading is not None and reading.window is not None:
            pulse = Pulse(lane, int(number), self._core.sequencer.last)
            reading.window.pulses.append(pulse)

    def disturb(self, table: str, what: str) -> None:
        for window in self._windows:
            window.saw_change_of(table, what)
        # What a snapshot holds of rows that went or changed since cannot be told from others.
        if self._core.tables.keyless(table) and self._core.requests.restart(table):
            self._core.draft.state_changed = True

    def on_high(self, mark: Mark, *, now: float) -> None:
        reading = self.orders.find(mark.token)
        if reading is not None:
            reading.high = mark
            self.settle(now=now)

    def settle(self, *, now: float) -> None:
        """Emit the chunks whose turn has come, and drop those whose turn will never come."""
        for reading in self.orders.ready():
            window, chunk, high = reading.window, reading.chunk, reading.high
            if window is not None and chunk is not None and high is not None:
                self._judge(reading, window, chunk, high, now=now)
            self.orders.pause(reading.order.request_id, now)
        self._apply_shown()

    def expect_marks_before(self, heartbeat: str) -> None:
        """A heartbeat is about to be written: behind all marks that were."""
        for reading in self.orders.readings:
            if reading.written and reading.before is None:
                reading.before = heartbeat

    def on_heartbeat(self, mark: Mark) -> None:
        """Marks that did not come before it will never come: raises Unavailable."""
        for reading in self.orders.readings:
            if reading.before == mark.token:
                raise Unavailable(
                    f"the marks of a chunk of {reading.order.table} were written to the source, and"
                    " did not come through its log",
                    hint="`tideline doctor` shows whether the log leaves our marks out",
                )

    # -- other threads -------------------------------------------------------------------------

    def on_chunk(self, told: Told, *, now: float) -> None:
        reading = self.orders.find(told.token)
        if reading is None:
            return
        if isinstance(told, Waiting):
            reading.waiting = told.reason
        elif isinstance(told, MarksWritten):
            reading.written = True
        elif isinstance(told, ChunkRead):
            reading.read, reading.waiting = told, None
            full = told.rows >= reading.order.rows_max
            self.orders.governor.saw_chunk(
                reading.order.table, told.rows, took_s=told.took_s, full=full
            )
        elif isinstance(told, Chunk):
            reading.chunk = told
            self._trouble.pop(reading.order.table, None)
            self.orders.release(reading.order.table)
            self._show(told.snapshot, reading)
        else:
            self._failed(reading, told, now=now)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self._show(snapshot)

    def restate(self, facts: TableFacts) -> None:
        """It is known which columns a table had before these: what dumps began with is that too."""
        for (request_id, table), catalog in self._begun_with.items():
            if table == facts.table:
                self._begun_with[request_id, table] = restated_columns(catalog, facts)

    def circumstances(self, item: OpenRequest, *, now: float) -> Circumstances:
        """What an open request is held up by, and how fast its tables get on."""
        readings, request_id = self.orders.readings, item.request.request_id
        waits = {one.order.table: one.waiting for one in readings if one.waiting is not None}
        rates = {
            dump.table: rate
            for dump in item.dumps
            if (rate := self._rates.of(request_id, dump.table, now=now)) is not None
        }
        return Circumstances(
            paused=self._core.requests.is_paused(item),
            throttled=self.orders.governor.throttled_by(now=now),
            waiting={**self._trouble, **waits},
            rates=rates,
        )

    # -- judgement -----------------------------------------------------------------------------

    def _judge(
        self, reading: Reading, window: Window, chunk: Chunk, mark: Mark, *, now: float
    ) -> None:
        core, order = self._core, reading.order
        if order.fence:
            self.unseen.fenced()
            self.orders.fenced(reading)
        dump = core.requests.dump(order.request_id, order.table)
        if dump is None or stale(order, dump):
            return
        if order.keyless:
            self._judge_copy(reading, window, chunk, dump, mark, now=now)
            return
        missed = self.orders.unfenced(order.table) or len(invisible(window.unseen, chunk.snapshot))
        altered = self._catalogs.differs(window, chunk.facts)
        if window.disturbed or missed or altered:
            self._redo()
            return
        if order.verify:
            self._verify(order, window.low_seq, chunk, dump, now=now)
            return
        if not self._fit(order, chunk, dump):
            return
        self.orders.emitted()
        dump = core.requests.dump(order.request_id, order.table) or dump
        self._emit(order, window, chunk, mark)
        self._rates.note(order.request_id, order.table, chunk.batch.num_rows, now=now)
        self._advance(order, chunk, dump)

    def _verify(
        self, order: ChunkOrder, low_seq: int, chunk: Chunk, dump: TableDump, *, now: float
    ) -> None:
        fits = self._checks.fits(order, chunk, dump)
        if fits is None:
            self.redone += 1
            self.orders.hold(order.table, now + RETRY_DELAY_S)
        if fits:
            self.orders.emitted()
            self._checks.keep(order, low_seq, chunk, dump)
            self._rates.note(order.request_id, order.table, chunk.batch.num_rows, now=now)
            self._advance(order, chunk, dump)

    def _judge_copy(
        self,
        reading: Reading,
        window: Window,
        chunk: Chunk,
        dump: TableDump,
        mark: Mark,
        *,
        now: float,
    ) -> None:
        """A chunk of a table without a key: the first one finds the place of its snapshot in the
        log, all others bring that snapshot's rows."""
        core, order = self._core, reading.order
        if order.after_key is not None:
            if self._fit(order, chunk, dump):
                self._emit(order, window, chunk, mark)
                self._rates.note(order.request_id, order.table, chunk.batch.num_rows, now=now)
                self._advance(order, chunk, dump)
            return
        missed = self.orders.unfenced(order.table) or len(invisible(window.unseen, chunk.snapshot))
        place = None
        if not (window.disturbed or missed):
            place = place_of(
                window.events,
                chunk,
                low_seq=window.low_seq,
                high_seq=core.sequencer.last,
                pulses=window.pulses,
            )
        if place is None:
            self._trouble[order.table] = "changes come too fast to tell where a snapshot of it lies"
            self._redo()
            return
        if self._fit(order, chunk, dump):
            self.orders.emitted()
            self._trouble.pop(order.table, None)
            self._advance(order, chunk, replace(dump, first_low_seq=place.seq, seen=place.seen))

    def _redo(self) -> None:
        self.orders.redo()
        self.redone += 1

    def _fit(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> bool:
        """Whether the chunk belongs to the dump as it was begun; if not, what follows is done."""
        core, facts = self._core, chunk.facts
        if facts.problem is not None or facts.schema is None:
            reason = facts.problem or "it has no schema"
            core.conditions.park(order.table, reason=reason, hint=facts.hint, cause=CATALOG)
            return False
        if chunk.key_overflow:
            columns = ", ".join(chunk.key_overflow)
            core.conditions.park(
                order.table,
                reason=f"key column {columns} has a value that its type cannot hold",
                hint="change the value or the column's type, then dump the table",
                cause=VALUE,
            )
            return False
        if dump.key_definition is not None and dump.key_definition != facts.key_definition:
            core.requests.update(order.request_id, TableDump(order.table))
            core.draft.state_changed = True
            return False
        if not core.tables.captures(order.table):
            core.conditions.fail_dumps(order.table, "the table is parked")
            return False
        core.conditions.adopt(facts.schema, facts)
        # Adopting can have begun this dump anew: its low mark was before the schema event.
        now = core.requests.dump(order.request_id, order.table)
        return now is not None and now.first_low_seq is not None

    def _emit(self, order: ChunkOrder, window: Window, chunk: Chunk, mark: Mark) -> None:
        core = self._core
        schema = core.tables.schema(order.table)
        if schema is None:
            raise InvariantBroken(f"a chunk of {order.table}, which has no schema")
        settled = settle(window, schema, chunk.batch)
        count = settled.whole.true_count + len(settled.partial)
        first = core.sequencer.take(count)
        rows = dump_rows(schema, chunk.batch, settled, first_seq=first, ts_us=mark.clock_us)
        if chunk.missing is not None:
            gone = untouched(window, schema, chunk.missing)
            first = core.sequencer.take(gone.num_rows)
            rows += missing_rows(schema, gone, first_seq=first, ts_us=mark.clock_us)
        for part in rows:
            core.draft.add(part)

    def _advance(self, order: ChunkOrder, chunk: Chunk, dump: TableDump) -> None:
        core = self._core
        asked = chunk.batch.num_rows if order.keys is None else chunk.keys_read
        if order.boundary_only and not chunk.complete:
            asked = order.rows_max
        phase, last_key, complete = dump.phase, chunk.last_key or dump.last_key, chunk.complete
        keys = core.requests.keys_asked(order.request_id)
        if order.keys is not None:
            done = (int(dump.last_key[0]) if dump.last_key else 0) + asked
            last_key, complete = (str(done),), done >= len(keys)
        elif complete and keys:
            phase, last_key, complete = "keys", None, False
        advanced = replace(
            dump,
            state="done" if complete else "running",
            phase=phase,
            last_key=last_key,
            key_definition=chunk.facts.key_definition,
            chunks=dump.chunks + 1,
            rows=dump.rows + asked,
            rows_estimate=chunk.rows_estimate or dump.rows_estimate,
        )
        core.requests.update(order.request_id, advanced)
        core.draft.state_changed = True
        if dump.chunks == 0:
            self._begun_with[order.request_id, order.table] = chunk.facts.catalog
        if complete:
            self._finish(order, advanced)
            core.end_requests()
            if order.request_id not in core.requests:
                self._rates.forget(order.request_id)

    def _finish(self, order: ChunkOrder, dump: TableDump) -> None:
        core = self._core
        item = next(i for i in core.requests.open if i.request.request_id == order.request_id)
        if not item.request.whole or dump.first_low_seq is None:
            return
        core.draft.floors.append(self._floor(order, dump, dump.first_low_seq))
        catalog = self._begun_with.pop((order.request_id, order.table), None)
        if catalog is not None:
            # What changed before the first chunk is in the dump: no round need ask for another.
            state = core.tables.states[dump.table]
            core.tables.states[dump.table] = replace(state, catalog=catalog)
        state = core.tables.states[dump.table]
        blocked = state.condition is TableCondition.BLOCKED
        if blocked and not unblocks(item, state):
            return
        # It began before changes that are in doubt, and another one is to prove them.
        followed = core.requests.awaits_dump(dump.table, f"{FOLLOW_UP}:")
        if blocked or not followed:
            core.tables.proven(
                dump.table,
                first_low_seq=dump.first_low_seq,
                first_manifest=dump.first_manifest or 0,
                last_seq=core.sequencer.last,
            )
        if blocked and followed:
            reason = "changes that the log does not tell came during its dump"
            core.tables.unprove(dump.table, since=dump.first_low_seq, reason=reason)

    def _floor(self, order: ChunkOrder, dump: TableDump, seq: int) -> Floor:
        if not order.keyless:
            return Floor(dump.table, seq, order.request_id)
        return Floor(
            dump.table,
            seq,
            order.request_id,
            copied=Copied(
                first_manifest=dump.first_manifest or 0,
                last_seq=self._core.sequencer.last,
                rows=dump.rows,
                seen=dump.seen,
            ),
        )

    def _failed(self, reading: Reading, failed: ChunkFailed, *, now: float) -> None:
        core, order = self._core, reading.order
        self.orders.end(reading)
        if failed.anew and core.requests.dump(order.request_id, order.table) is not None:
            core.requests.update(order.request_id, TableDump(order.table))
            core.draft.state_changed = True
            return
        moved = reading.window is not None and reading.window.disturbed is not None
        if failed.retry or moved:  # What was made anew meanwhile may not have been there yet.
            self._trouble[order.table] = failed.error
            self._redo()
            self.orders.hold(order.table, now + RETRY_DELAY_S)
            return
        dump = core.requests.dump(order.request_id, order.table)
        if dump is not None:
            text = failed.error if failed.hint is None else f"{failed.error}; {failed.hint}"
            ended = replace(dump, state="failed", error=text)
            core.requests.update(order.request_id, ended)
            core.draft.state_changed = True
            core.end_requests()

    @property
    def _windows(self) -> list[Window]:
        return [one.window for one in self.orders.readings if one.window is not None]

    def _show(self, snapshot: Snapshot, reading: Reading | None = None) -> None:
        """What ``snapshot`` (the one that ``reading`` was read in) shows may be forgotten; but not
        before the low marks of others that are under way have come: their chunks may have been read
        before it was taken."""
        if len(self._shown) > 1:
            self._shown.pop()  # The oldest says soonest what may be forgotten, the newest most.
        self._shown.append((snapshot, self._awaited - {reading.order.token if reading else ""}))
        self._apply_shown()

    def _apply_shown(self) -> None:
        while self._shown and not self._shown[0][1] & self._awaited:
            self.unseen.shown(self._shown.pop(0)[0])

    @property
    def _awaited(self) -> frozenset[str]:
        """The chunks under way whose low marks have not come."""
        return frozenset(r.order.token for r in self.orders.readings if r.window is None)
