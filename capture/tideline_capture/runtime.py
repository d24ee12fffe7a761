"""One session of the worker: sockets and threads around the core, until an error or a stop.

The log reader's thread is the core's: it reads, decodes, decides and hands segments to the
uploader. Everything else reaches it through queues. A session begins from what is durable and keeps
nothing: whatever goes wrong with the source, the next one begins again from the chain's tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import structlog
from msgspec.structs import replace

from tideline.contract.clocks import apart
from tideline.contract.errors import Unavailable
from tideline.contract.open_state import OpenState
from tideline.contract.position import SourcePosition
from tideline.contract.schema import TableSchema
from tideline.programs.points import OnPoint
from tideline.settings import Capture
from tideline.store.chain import Chain, ManifestEntry
from tideline.system import Event, Queue, System
from tideline_capture.control_thread import ControlThread
from tideline_capture.core.facts import CatalogIdentity, CatalogRound, Snapshot, SourceLoad
from tideline_capture.core.limits import DumpPolicy
from tideline_capture.core.segment import Segment
from tideline_capture.core.worker import Worker
from tideline_capture.health import Health
from tideline_capture.live import LiveSettings
from tideline_capture.metrics import Metrics
from tideline_capture.source_threads import Dumpers, Found, Watcher
from tideline_capture.sources.base import LogReader, Source
from tideline_capture.sources.watermark_key import WatermarkKey
from tideline_capture.table_log import TableLog
from tideline_capture.uploader import Uploader

_POLL_MESSAGES = 2_000
_PAUSE_S = 0.002
"""Pausing this long when little has come lets messages gather; waking up for each costs 4×."""
_FEW_MESSAGES = 100
"""A read that found fewer has emptied what was received: the log comes slower than it is read."""
_BUSY_S = 0.05
_WAIT_S = 0.02
_CONFIRM_S = 5.0
_REPORT_S = 0.5
_JOIN_S = 2.0
"""The limit for joining a thread. One that runs longer waits for the source; the next session ends
its connection."""

log = structlog.get_logger("tideline.session")


class Ended(Enum):
    """The reason of a session that ended without an error."""

    STOPPED = "stopped"
    IDLE = "idle"
    CHANGED = "changed"
    """The settings changed: another session continues with them."""


@dataclass(frozen=True, slots=True)
class WorkerRuntime:
    """The parts that outlive a session: the uploader and the control thread.

    The uploader extends the chain, the control thread talks to clients. ``live`` holds the
    settings, and says when they changed.
    """

    chain: Chain
    uploader: Uploader
    control_thread: ControlThread
    metrics: Metrics
    writer: str
    stopping: Event
    on_point: OnPoint
    live: LiveSettings
    health: Health
    system: System


class CaptureSession:
    """Captures from the chain's tail ``entry`` (open state ``state``) on."""

    def __init__(
        self,
        source: Source,
        runtime: WorkerRuntime,
        entry: ManifestEntry,
        state: OpenState,
        *,
        settings: Capture,
        policy: DumpPolicy,
        until_idle_s: float | None,
    ) -> None:
        self._source = source
        self._runtime = runtime
        self._system = runtime.system
        self._settings = settings
        self._until_idle_s = until_idle_s
        self._key = WatermarkKey(entry.manifest.incarnation)
        self._tail = entry
        schemas = _schemas(runtime, state)
        self.core = Worker(
            entry.manifest,
            state,
            schemas,
            limits=settings,
            policy=policy,
            token=runtime.system.new_id,
        )
        self._found: Queue[Found] = runtime.system.queue()
        self._durable: Queue[tuple[ManifestEntry, Segment | None]] = runtime.system.queue()
        self._table_log = TableLog(state)
        self._accepted = {item.request.request_id for item in state.requests}
        self._buffered_since: float | None = None
        self._buffered = 0
        self._received_at = self._waited_for_at = runtime.system.monotonic()
        self._confirmed_at = 0.0
        self._reported_at = 0.0
        self._quiet_since = self._system.monotonic()
        self._position: SourcePosition | None = None
        self._throttled = self._trickles = False
        self._log_warning: str | None = None
        self._clocks_apart: str | None = None
        self._reported_unknown = False
        self._silence_max_s = max(settings.mark_timeout_s, 3 * settings.catalog_interval_s)

    def run(self) -> Ended:
        """Run until ``stopping``, idle for long enough, or ``changed``; raise any other end's
        error."""
        position = self._begin()
        reader = self._source.log_reader(
            position, self._key, self.core.state.captures, self.core.state.prepared
        )
        dumpers = Dumpers(
            self._source,
            self._key,
            self._found,
            self._runtime.on_point,
            self._system,
            workers=self._settings.parallel_dumps_max,
        )
        interval = self._settings.catalog_interval_s
        if self._until_idle_s is not None:
            interval = min(interval, max(self._until_idle_s / 2, 0.2))
        watcher = Watcher(
            self._source,
            self._key,
            self._found,
            self._system,
            settings=self._settings,
            catalog_interval_s=interval,
        )
        watcher.durable = position, self.core.state.clock.time_us
        self._runtime.uploader.on_durable = lambda entry, segment: self._durable.put(
            (entry, segment)
        )
        try:
            watcher.start()
            log.info("reading the log", position=str(position))
            self._runtime.on_point("reading")
            self._received_at = self._system.monotonic()
            self._runtime.health.reading(True)
            ended = None
            while ended is None:
                self._turn(reader, dumpers, watcher)
                ended = self._ended(watcher)
            self._finish()
            return ended
        finally:
            self._runtime.health.reading(False)
            dumpers.stop()
            watcher.stop()
            reader.close()
            dumpers.join(_JOIN_S)
            watcher.join(_JOIN_S)

    def _begin(self) -> SourcePosition:
        """Return where to read the log from.

        At the very first start the source is prepared in steps, each durable before the next.
        Recent answers are sent again: the worker before may have died between its manifest and its
        answer.
        """
        state = self.core.state
        for answer in state.recent.all:
            self._runtime.control_thread.answer(answer)
        while True:
            tail = replace(
                self._tail.manifest,
                position=state.position,
                identity=state.identity,
                state=state.open_state(),
            )
            position = self._source.resume(tail, self._on_waiting)
            state.identify(self._source.identity())
            if position == state.position:
                return position
            state.resume(position)
            segment = self.core.close_segment(now=self._system.monotonic(), force=True)
            if segment is not None:
                self._runtime.uploader.submit(segment)
                self._runtime.uploader.drain()

    def _on_waiting(self, reason: str) -> None:
        self._runtime.health.main.turn()
        if self._runtime.stopping.is_set():
            raise Unavailable(f"stopped while {reason}")
        status = self._runtime.metrics.status(
            self._runtime.writer,
            self._runtime.uploader.last,
            note=reason,
            restart_for=self._runtime.live.restart_for,
        )
        self._runtime.control_thread.publish(status)

    # -- one turn ------------------------------------------------------------------------------

    def _turn(self, reader: LogReader, dumpers: Dumpers, watcher: Watcher) -> None:
        now = self._system.monotonic()
        self._runtime.health.main.turn()
        for thread in (self._runtime.uploader, self._runtime.control_thread, dumpers, watcher):
            if thread.failure is not None:
                raise thread.failure
        self.core.begin_turn()
        self._take_found(now)
        self._take_durable(reader, now)
        if self._position is not None:
            watcher.durable = self._position, self.core.state.clock.time_us
        received = self._read(reader, now)
        self._hand_over(now)
        if self.core.intake.waits:
            watcher.look()
        while (order := self.core.next_order(now=now)) is not None:
            self._runtime.on_point("between-chunks")
            dumpers.give(order)
        self._report(now)
        self._check_answers(watcher, now)
        if received:
            self._received_at = now
            if self._trickles:
                self._system.pause(_PAUSE_S)
        elif self._throttled:
            # Not `wait`: what is not read now lies in the socket, which is ready all the time.
            self._received_at = now
            self._system.pause(_WAIT_S)
        elif now - self._received_at > self._silence_max_s:
            raise Unavailable(
                f"nothing came from the log for {self._silence_max_s:g} s, although watermarks were"
                " written to it"
            )
        elif now - self._received_at < _BUSY_S:
            self._system.pause(_PAUSE_S)
        else:
            reader.wait(_WAIT_S)

    def _check_answers(self, watcher: Watcher, now: float) -> None:
        """Raise Unavailable when the catalog is overdue though the log comes.

        Watermarks that are not written may wait for us: for the store, or for a transaction's end.
        """
        if self._throttled or self.core.in_transaction:
            self._waited_for_at = now
        if now - max(watcher.answered_at, self._waited_for_at) > self._silence_max_s:
            raise Unavailable(
                f"the source reported nothing of its catalog for {self._silence_max_s:g} s"
            )

    def _read(self, reader: LogReader, now: float) -> int:
        """Read a little; decode when enough has gathered; return the number of messages that
        came."""
        self._throttled = self._runtime.uploader.pending_bytes > self._settings.upload_bytes_max
        if self._throttled:
            return 0
        due = self.core.flush_due(now=now, buffered_since=self._buffered_since)
        # End a transaction that has begun as soon as possible: nothing closes inside one.
        inside = self.core.in_transaction
        count = reader.poll(_POLL_MESSAGES, until_commit=due or inside)
        # A read that ends at a commit or a watermark has left the rest where it was.
        self._trickles = count < _FEW_MESSAGES and not (due or inside or reader.must_take)
        if count and self._buffered_since is None:
            self._buffered_since = now
        self._buffered += count
        full = (
            self._buffered >= self._settings.batch_rows_max
            or reader.buffered_bytes >= self._settings.batch_bytes_max
        )
        ended = inside and reader.at_commit
        if self._buffered and (reader.must_take or full or due or ended):
            # A watermark that was just read may end what another thread handed over before
            # writing it.
            self._take_found(now)
            batch = reader.take(self.core.state.next_seq)
            self.core.on_batch(batch, now=now, since=self._buffered_since)
            if self.core.in_transaction:
                self._runtime.on_point("inside-transaction")
            self._buffered, self._buffered_since = 0, None
        return count

    def _hand_over(self, now: float) -> None:
        partly_flushed = self.core.flush_partial(now=now)
        if partly_flushed is not None:
            self._runtime.uploader.submit(partly_flushed)
        segment = self.core.close_segment(now=now)
        if segment is not None:
            self._runtime.uploader.submit(segment)

    def _take_found(self, now: float) -> None:
        while not self._found.empty():
            found = self._found.get()
            if isinstance(found, CatalogRound):
                self.core.on_catalog(found)
            elif isinstance(found, Snapshot):
                self.core.on_snapshot(found)
            elif isinstance(found, SourceLoad):
                self._take_load(found, now)
            else:
                self.core.on_chunk(found, now=now)
        while not self._runtime.control_thread.arrivals.empty() and not self.core.intake.tired:
            arrived = self._runtime.control_thread.arrivals.get()
            answer = self.core.on_arrival(arrived)
            if answer is not None:
                self._runtime.control_thread.answer(answer)

    def _take_load(self, load: SourceLoad, now: float) -> None:
        self.core.on_load(load, now=now)
        self._runtime.metrics.loaded(load)
        if load.log_warning is not None and self._log_warning is None:
            log.warning("the source will remove its log soon", reason=load.log_warning)
        self._log_warning = load.log_warning
        clock_us = load.clock_us
        words = None if clock_us is None else apart(clock_us, self._system.wall_us())
        if words is not None and self._clocks_apart is None:
            log.warning("two clocks differ: set both right", reason=words)
        self._clocks_apart = words

    def _take_durable(self, reader: LogReader, now: float) -> None:
        """Confirm to the source, and report to clients, only what a manifest holds."""
        committed = self.report()
        if committed or now - self._confirmed_at >= _CONFIRM_S:
            self._confirm(reader, now)

    def report(self) -> bool:
        """Report what became durable to clients and queue; return whether there was a segment.

        Call it once more after the session, when what it handed over is durable too.
        """
        committed = False
        while not self._durable.empty():
            entry, segment = self._durable.get()
            manifest = entry.manifest
            self.core.state.durable(manifest)
            self._position = manifest.position
            self._accepted.update(manifest.accepted)
            for answer in (*manifest.finished, *manifest.refused):
                # A message under the id of a running request is refused silently: its clients
                # wait for that request.
                if answer.request_id not in self.core.state.requests:
                    self._accepted.discard(answer.request_id)
                    self._runtime.control_thread.answer(answer)
            if segment is not None:
                committed = True
                self._runtime.control_thread.acknowledge(segment.messages)
                self._runtime.metrics.committed(manifest)
                if segment.state_changed:
                    initial_dump = self.core.state.policy.initial
                    self._table_log.durable(segment.state, initial_dump=initial_dump)
        return committed

    def _confirm(self, reader: LogReader, now: float) -> None:
        if self._position is not None:
            self._runtime.on_point("before-confirm")
            reader.confirm(self._position)
            self._runtime.on_point("after-confirm")
        self._confirmed_at = now

    def _report(self, now: float) -> None:
        if now - self._reported_at < _REPORT_S:
            return
        self._reported_at = now
        if self.core.unknown_watermarks and not self._reported_unknown:
            self._reported_unknown = True
            log.warning(
                "the source's log has what looks like a watermark of this worker and is none:"
                " someone"
                " else writes it, or a worker before this one still does; nothing is made of it"
            )
        self._source.keep_copies(self.core.dumps.copies)
        answers = [
            answer for answer in self.core.answers(now=now) if answer.request_id in self._accepted
        ]
        for answer in answers:
            if not answer.state.final:
                self._runtime.control_thread.answer(answer)
        notes = ["the store is behind: reading stopped"] if self._throttled else []
        notes += [one for one in (self._log_warning, self._clocks_apart) if one is not None]
        note = "; ".join(notes) or None
        self._runtime.control_thread.publish(
            self._runtime.metrics.status(
                self._runtime.writer,
                self._runtime.uploader.last,
                answers=answers,
                note=note,
                restart_for=self._runtime.live.restart_for,
            )
        )
        self._runtime.metrics.observe(self.core, self._runtime.uploader, answers, now=now)

    # -- the end -------------------------------------------------------------------------------

    def _ended(self, watcher: Watcher) -> Ended | None:
        if self._runtime.stopping.is_set():
            return Ended.STOPPED
        if self._is_idle(watcher):
            return Ended.IDLE
        return Ended.CHANGED if self._runtime.live.changed() else None

    def _is_idle(self, watcher: Watcher) -> bool:
        """Return whether log, requests and uploads were quiet for ``until_idle_s``.

        A catalog round must have gone all the way through the log in that time: it proves that
        nothing that was committed before is still to come, or buffered.
        """
        if self._until_idle_s is None:
            return False
        now = self._system.monotonic()
        changed = self.core.last_change_at or 0.0
        busy = not self.core.idle() or self._runtime.uploader.pending_bytes > 0
        if busy or not self._runtime.control_thread.arrivals.empty():
            self._quiet_since = now
        self._quiet_since = max(self._quiet_since, changed)
        seen = watcher.started.get(self.core.catalog.seen_token or "", 0.0)
        return now - self._quiet_since >= self._until_idle_s and seen >= self._quiet_since

    def _finish(self) -> None:
        """Hand over what is whole; a transaction that was not read to its end comes again."""
        segment = self.core.close_segment(now=self._system.monotonic(), force=True)
        if segment is not None:
            self._runtime.uploader.submit(segment)
        stopping = self._runtime.stopping.is_set()
        self._runtime.uploader.drain(self._settings.stop_timeout_s if stopping else None)
        self.report()


def _schemas(runtime: WorkerRuntime, state: OpenState) -> dict[str, TableSchema]:
    """Return the schemas that the open state names: those in force, and those of the catalog's
    text."""
    fingerprints = set()
    for table in state.tables.values():
        fingerprints.add(table.schema)
        if table.catalog:
            fingerprints.add(CatalogIdentity.parse(table.catalog).fingerprint)
    known = sorted(item for item in fingerprints if item)
    schemas = {}
    for fingerprint in known:
        runtime.health.main.turn()
        schemas[fingerprint] = runtime.chain.read_schema(fingerprint)
    return schemas
