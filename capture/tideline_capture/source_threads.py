"""Threads that talk to the source alongside the log reader: dumpers and the catalog watcher.

Each owns its connections, hands what it finds to the core through a queue, and stops the session by
leaving its error in ``failure``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from tideline.contract.errors import TidelineError, Unavailable
from tideline.contract.position import SourcePosition
from tideline.programs.points import OnPoint
from tideline.settings import Capture
from tideline.system import Empty, Queue, System
from tideline_capture.core.chunks import (
    ChunkEvent,
    ChunkFailed,
    ChunkOrder,
    Waiting,
    WatermarksWritten,
)
from tideline_capture.core.facts import CatalogRound, Snapshot, SourceLoad
from tideline_capture.sources.base import ChunkReader, FetchedChunk, Source
from tideline_capture.sources.watermark_key import WatermarkKey

Found = ChunkEvent | CatalogRound | Snapshot | SourceLoad
_LOOK_S = 0.2
_JOIN_S = 5.0


class SourceThread:
    """A thread that works until it is stopped or fails; ``found`` goes to the core."""

    def __init__(self, name: str, found: Queue[Found], system: System) -> None:
        self.failure: BaseException | None = None
        self.found = found
        self.system = system
        self.stopping = system.event()
        self._thread = system.thread(self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for its end, for ``timeout_s`` at most; return at once where it was not started."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self.work()
        except TidelineError as error:
            self.failure = error
        except BaseException as error:
            self.failure = error
            raise

    def work(self) -> None:
        raise NotImplementedError


class Dumpers:
    """Up to ``workers`` dumpers, which take chunk orders from one queue.

    Each is made when there is work for it, so that the source has no unused connection.
    """

    def __init__(
        self,
        source: Source,
        key: WatermarkKey,
        found: Queue[Found],
        on_point: OnPoint,
        system: System,
        *,
        workers: int,
    ) -> None:
        self._source = source
        self._key = key
        self._found = found
        self._on_point = on_point
        self._system = system
        self._workers = workers
        self._orders: Queue[ChunkOrder | None] = system.queue()
        self._dumpers: list[Dumper] = []

    @property
    def failure(self) -> BaseException | None:
        """The error of the first dumper that failed, if any did."""
        return next((one.failure for one in self._dumpers if one.failure is not None), None)

    def give(self, order: ChunkOrder) -> None:
        """Have the chunk read as soon as a dumper is free."""
        idle = sum(one.idle for one in self._dumpers)
        if self._orders.qsize() >= idle and len(self._dumpers) < self._workers:
            dumper = Dumper(
                self._source, self._key, self._found, self._on_point, self._orders, self._system
            )
            self._dumpers.append(dumper)
            dumper.start()
        self._orders.put(order)

    def stop(self) -> None:
        """Let the dumpers end; to be followed by `join`."""
        for dumper in self._dumpers:
            dumper.stopping.set()
        for _ in self._dumpers:
            self._orders.put(None)

    def join(self, timeout_s: float) -> None:
        for dumper in self._dumpers:
            dumper.join(timeout_s)


class Dumper(SourceThread):
    """Reads the chunks in ``orders``, one after the other.

    A second thread decodes each chunk and writes its high watermark while the next one is read.
    ``idle``: it waits for an order.
    """

    def __init__(
        self,
        source: Source,
        key: WatermarkKey,
        found: Queue[Found],
        on_point: OnPoint,
        orders: Queue[ChunkOrder | None],
        system: System,
    ) -> None:
        super().__init__("dumper", found, system)
        self.idle = False
        self._source = source
        self._key = key
        self._orders = orders
        self._on_point = on_point

    def work(self) -> None:
        reader = self._source.chunk_reader(self._key)
        finisher = _Finisher(reader, self.found, self._on_point, self.system)
        finisher.start()
        try:
            while (order := self._next(finisher)) is not None:
                begun = self.system.monotonic()
                fetched = reader.fetch(order, partial(self._report_waiting, order.token))
                if isinstance(fetched, ChunkFailed):
                    self.found.put(fetched)
                    continue
                took_s = 0.0 if order.fence else self.system.monotonic() - begun
                self._on_point("after-select")
                self.found.put(replace(fetched.read, took_s=took_s))
                finisher.fetched.put((order, fetched))
        finally:
            finisher.fetched.put(None)
            finisher.join(_JOIN_S)
            reader.close()

    def _next(self, finisher: _Finisher) -> ChunkOrder | None:
        """Return the next order, or None to end the dumper; raise the finisher's error."""
        self.idle = True
        try:
            while not self.stopping.is_set():
                if finisher.failure is not None:
                    raise finisher.failure
                with suppress(Empty):
                    return self._orders.get(timeout=_LOOK_S)
        finally:
            self.idle = False
        return None

    def _report_waiting(self, token: str, reason: str | None) -> None:
        if self.stopping.is_set():
            raise Unavailable("the session ended while a chunk waited")
        self.found.put(Waiting(token, reason))


class _Finisher(SourceThread):
    """Decodes what the dumper has read, hands it over, and writes the high watermark after it."""

    def __init__(
        self, reader: ChunkReader, found: Queue[Found], on_point: OnPoint, system: System
    ) -> None:
        super().__init__("chunk-finisher", found, system)
        self.fetched: Queue[tuple[ChunkOrder, FetchedChunk] | None] = system.queue()
        self._reader = reader
        self._on_point = on_point

    def work(self) -> None:
        while (item := self.fetched.get()) is not None:
            order, fetched = item
            chunk = fetched.decode()
            self._on_point("between-watermarks")
            self.found.put(chunk)
            self._reader.write_high(order)
            self._on_point("after-high")
            self.found.put(WatermarksWritten(order.token))


class Watcher(SourceThread):
    """Catalog rounds (each ends with a heartbeat in the log), with snapshots and load checks
    between.

    ``started`` has the start of each round by token, ``answered_at`` the time of the source's last
    answer (monotonic seconds). ``durable`` is set to the position from which the log is still
    needed, and the source's clock there; without it the load is not checked.
    """

    def __init__(
        self,
        source: Source,
        key: WatermarkKey,
        found: Queue[Found],
        system: System,
        *,
        settings: Capture,
        catalog_interval_s: float,
    ) -> None:
        super().__init__("watcher", found, system)
        self.started: dict[str, float] = {}
        self.answered_at = system.monotonic()
        self.durable: tuple[SourcePosition, int | None] | None = None
        self._source = source
        self._key = key
        self._catalog_interval_s = catalog_interval_s
        self._snapshot_interval_s = settings.snapshot_interval_s
        self._load_interval_s = settings.load_interval_s
        self._asked = system.event()

    def stop(self) -> None:
        self.stopping.set()

    def look(self) -> None:
        """Begin the next round soon, before its time."""
        self._asked.set()

    def work(self) -> None:
        watch = self._source.watch(self._key)
        try:
            next_round = next_load = self.system.monotonic()
            while not self.stopping.is_set():
                begun = self.system.monotonic()
                if begun >= next_load and self.durable is not None:
                    self.found.put(watch.load(*self.durable))
                    next_load = begun + self._load_interval_s
                if begun >= next_round or self._asked.is_set():
                    self._asked.clear()
                    watch.round(partial(self._register, begun))
                    next_round = begun + self._catalog_interval_s
                self.found.put(watch.snapshot())
                self.answered_at = self.system.monotonic()
                self.stopping.wait(min(self._snapshot_interval_s, self._catalog_interval_s))
        finally:
            watch.close()

    def _register(self, begun: float, observed: CatalogRound) -> None:
        self.started[observed.token] = begun
        while len(self.started) > 100:
            del self.started[next(iter(self.started))]
        self.found.put(replace(observed, at_us=self.system.wall_us()))
