"""A session with a source and a desk that follow a script: what it tells, and how it ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tests.fixtures.core import (
    EVERYTHING,
    IDENTITY,
    POLICY,
    SCHEMA,
    SETTINGS,
    TABLE,
    first_manifest,
    limits_with,
)
from tests.fixtures.systems import REAL
from tests.fixtures.troubled_store import Failing, TroubledStore
from tideline.contract.errors import InvariantBroken, SourceLost, TidelineError, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.control import WorkerStatus
from tideline.settings import Capture
from tideline.store.chain import Chain
from tideline.system import RealSystem, System
from tideline_capture.control_thread import ControlThread
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import (
    Arrival,
    Boundary,
    LogBatch,
    RequestArrived,
    UnknownWatermark,
    Watermark,
    WatermarkKind,
)
from tideline_capture.core.facts import CatalogRound, Snapshot, SourceLoad
from tideline_capture.health import Health
from tideline_capture.leadership import Lead
from tideline_capture.live import LiveSettings
from tideline_capture.metrics import Metrics
from tideline_capture.runtime import CaptureSession, WorkerRuntime
from tideline_capture.sources.base import Source
from tideline_capture.sources.watermark_key import WatermarkKey
from tideline_capture.uploader import Uploader

PATIENCE_S = 60.0
ENDED = Answer("ended", RequestState.DONE, manifest_number=1)
STATE = OpenState(tables={TABLE: TableState(schema=SCHEMA.fingerprint)}, recent=(ENDED,))


class FakeReader:
    """A log in which nothing happens but what ``batches`` say."""

    def __init__(self) -> None:
        self.buffered_bytes = 0
        self.must_take = False
        self.at_commit = False
        self.batches: list[LogBatch | TidelineError] = []
        self.confirmed: list[PostgresPosition] = []
        self.polls = self.waits = 0
        self.closed = False

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        self.polls += 1
        self.must_take = bool(self.batches)
        return len(self.batches[:1])

    def take(self, next_seq: int) -> LogBatch:
        found = self.batches.pop(0)
        if isinstance(found, TidelineError):
            raise found
        return found

    def confirm(self, position: PostgresPosition) -> None:
        self.confirmed.append(position)

    def wait(self, timeout_s: float) -> None:
        self.waits += 1
        time.sleep(0.001)

    def close(self) -> None:
        self.closed = True


class TalkingReader(FakeReader):
    """A log that is never silent."""

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        self.batches.append(boundary(500 + self.polls))
        return super().poll(messages_max, until_commit=until_commit)


class CountedReader(FakeReader):
    """A log that comes in reads of so many messages, then never again; ``watermark``: the number of
    the read that ends at one."""

    def __init__(self, counts: list[int], *, watermark: int) -> None:
        super().__init__()
        self.counts, self.watermark = counts, watermark

    def poll(self, messages_max: int, *, until_commit: bool) -> int:
        assert not until_commit
        self.must_take = self.polls == self.watermark
        self.polls += 1
        return self.counts[self.polls - 1] if self.polls <= len(self.counts) else 0

    def take(self, next_seq: int) -> LogBatch:
        return boundary(500 + self.polls)


class Pausing(RealSystem):
    """A system that notes after how many reads of ``reader`` the loop paused."""

    def __init__(self) -> None:
        self.reader = FakeReader()
        self.paused_after: list[int] = []

    def pause(self, seconds: float) -> None:
        self.paused_after.append(self.reader.polls)
        super().pause(seconds)


class FakeWatch:
    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self.busy = SourceLoad()
        self.rounds = 0
        self.answering = threading.Event()
        self.answering.set()

    def round(self, register: Callable[[CatalogRound], None]) -> None:
        self.rounds += 1
        if self.failure is not None:
            raise self.failure

    def snapshot(self) -> Snapshot:
        self.answering.wait()
        return EVERYTHING

    def load(self, position: PostgresPosition, source_time_us: int | None) -> SourceLoad:
        return self.busy

    def close(self) -> None: ...


class LockedChunks:
    """No chunk can be read now."""

    def fetch(self, order: ChunkOrder, on_waiting: Callable[[str | None], None]) -> ChunkFailed:
        return ChunkFailed(order.token, "the table is locked", None, retry=True)

    def close(self) -> None: ...


class FakeSource:
    def __init__(self) -> None:
        self.reader = FakeReader()
        self.watching = FakeWatch()
        self.opened = False
        self.kept: list[Collection[str]] = []

    def identity(self) -> SourceIdentity:
        return IDENTITY

    def resume(self, tail: Manifest, on_waiting: Callable[[str], None]) -> PostgresPosition:
        return PostgresPosition(7)

    def log_reader(self, *_: object) -> FakeReader:
        self.opened = True
        return self.reader

    def chunk_reader(self, key: WatermarkKey) -> LockedChunks:
        return LockedChunks()

    def watch(self, key: WatermarkKey) -> FakeWatch:
        return self.watching

    def keep_copies(self, tokens: Collection[str]) -> None:
        self.kept.append(tokens)


class FakeDesk:
    def __init__(self) -> None:
        self.arrivals: queue.SimpleQueue[RequestArrived] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        self.answers: list[Answer] = []
        self.acknowledged: list[str] = []
        self.statuses: list[WorkerStatus] = []

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def acknowledge(self, ids: tuple[str, ...]) -> None:
        self.acknowledged += ids

    def publish(self, status: WorkerStatus) -> None:
        self.statuses.append(status)


class Rig:
    """A session over fakes and a store in memory; it runs in a thread of its own."""

    def __init__(self, system: System = REAL, **settings: Any) -> None:
        self.store = TroubledStore()
        self.source, self.control_thread = FakeSource(), FakeDesk()
        self.stopping = threading.Event()
        chain = Chain(self.store, "p")
        chain.write_schema(SCHEMA)
        entry = chain.append(first_manifest(state=STATE))
        self.uploader = Uploader(self.store, chain, Lead(entry, STATE, 0.0), REAL, heartbeat_s=60.0)
        self.uploader.start()
        runtime = WorkerRuntime(
            chain,
            self.uploader,
            cast(ControlThread, self.control_thread),
            Metrics("p", REAL),
            "w",
            self.stopping,
            lambda point: None,
            LiveSettings(SETTINGS, clock=REAL.monotonic),
            Health(clock=REAL.monotonic),
            system,
        )
        self.chain = chain
        self.session = CaptureSession(
            cast(Source, self.source),
            runtime,
            entry,
            STATE,
            settings=limits_with(**{"flush_interval_s": 0.01, "stop_timeout_s": 0.1, **settings}),
            policy=POLICY,
            until_idle_s=None,
        )
        self.ended: list[BaseException | None] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.session.run()
        except TidelineError as error:
            self.ended.append(error)
        else:
            self.ended.append(None)

    def wait(self) -> BaseException | None:
        self._thread.join(PATIENCE_S)
        assert self.ended, "the session goes on"
        return self.ended[0]

    def stop(self) -> None:
        self.stopping.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
        self.uploader.stop()


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("tideline_capture.uploader._RETRY_S", 0.01)
    rig = Rig()
    yield rig
    rig.stop()


def boundary(lsn: int) -> LogBatch:
    return LogBatch((), 0, (), Boundary(PostgresPosition(lsn)), False, np.array([lsn], np.int64))


def asked(request_id: str) -> RequestArrived:
    return RequestArrived(f"m-{request_id}", DumpRequest(request_id, (TABLE,)))


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def test_the_logs_begin_is_durable_before_anything_is_read(rig: Rig) -> None:
    polls: list[int] = []
    rig.store.before = lambda kind, key: polls.append(rig.source.reader.polls)
    rig.start()
    eventually(lambda: rig.source.reader.polls)
    assert rig.uploader.last.manifest.position == PostgresPosition(7)
    assert set(polls) == {0}


def test_what_ended_before_is_told_again(rig: Rig) -> None:
    """The worker before may have died between a manifest and its answer."""
    rig.start()
    eventually(lambda: rig.source.reader.polls)
    assert rig.control_thread.answers[0] == ENDED


def test_a_stop_makes_durable_what_is_whole(rig: Rig) -> None:
    rig.start()
    eventually(lambda: rig.source.reader.polls)
    rig.control_thread.arrivals.put(asked("r"))
    eventually(lambda: rig.control_thread.acknowledged)
    rig.stop()
    assert rig.wait() is None
    assert "r" in {one for entry in rig.chain.entries(1, 3) for one in entry.manifest.accepted}
    assert rig.source.reader.closed


def test_the_source_is_told_again_and_again_which_snapshots_are_wanted(rig: Rig) -> None:
    rig.start()
    eventually(lambda: len(rig.source.kept) > 1)


def test_many_requests_at_once_are_taken_in_many_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn reads the log, whatever was asked."""
    monkeypatch.setattr("tideline_capture.core.requests.intake.WORK_MAX", 1)
    core, taken = rig.session.core, list[str]()
    begin_turn, on_arrival = core.begin_turn, core.on_arrival

    def turn() -> None:
        taken.append("turn")
        begin_turn()

    def request(arrived: Arrival) -> Answer | None:
        taken.append("request")
        return on_arrival(arrived)

    monkeypatch.setattr(core, "begin_turn", turn)
    monkeypatch.setattr(core, "on_arrival", request)
    for number in range(20):
        rig.control_thread.arrivals.put(asked(f"r{number}"))
    rig.start()
    eventually(lambda: taken.count("request") == 20)
    assert "request request" not in " ".join(taken)


class TestAcknowledged:
    def test_after_the_manifest_only(self, rig: Rig) -> None:
        rig.start()
        eventually(lambda: rig.source.reader.polls)
        rig.store.before = Failing("create", "/log/", 1_000_000)
        rig.control_thread.arrivals.put(asked("r"))
        eventually(lambda: rig.uploader.unavailable_since is not None)
        assert rig.control_thread.acknowledged == []
        assert {answer.request_id for answer in rig.control_thread.answers} == {"ended"}
        rig.store.before = lambda kind, key: None
        eventually(lambda: rig.control_thread.acknowledged == ["m-r"])

    def test_what_is_durable_after_the_session_is_told_too(self, rig: Rig) -> None:
        rig.start()
        eventually(lambda: rig.source.reader.polls)
        rig.store.before = Failing("create", "/log/", 1_000_000)
        rig.control_thread.arrivals.put(asked("r"))
        eventually(lambda: rig.uploader.unavailable_since is not None)
        rig.source.reader.batches.append(Unavailable("the source went away"))
        assert isinstance(rig.wait(), Unavailable)
        rig.store.before = lambda kind, key: None
        rig.uploader.drain(PATIENCE_S)
        assert rig.control_thread.acknowledged == []
        rig.session.report()
        assert rig.control_thread.acknowledged == ["m-r"]


def test_for_a_request_of_an_unknown_table_the_catalog_is_looked_at_soon(rig: Rig) -> None:
    rig.start()
    eventually(lambda: rig.source.watching.rounds == 1)
    unknown = DumpRequest("u", ("public.unknown",))
    rig.control_thread.arrivals.put(RequestArrived("m-u", unknown))
    eventually(lambda: rig.source.watching.rounds > 1)


def test_a_catalog_that_does_not_answer_ends_the_session() -> None:
    """Its connection may be open at our end only, while the log comes on another."""
    rig = Rig(mark_timeout_s=60.0, catalog_interval_s=0.05)
    rig.source.reader = TalkingReader()
    rig.start()
    eventually(lambda: rig.source.watching.rounds > 3)
    assert not rig.ended
    rig.source.watching.answering.clear()
    # Not before: until then a catalog that answers late on a busy machine would be a silent one.
    rig.session._silence_max_s = 0.3
    assert "reported nothing of its catalog" in str(rig.wait())
    rig.source.watching.answering.set()
    rig.stop()


def test_messages_gather_where_few_come_at_once() -> None:
    """A turn costs as much as decoding hundreds of them. What was left behind does not wait."""
    system = Pausing()
    rig = Rig(system, flush_interval_s=60.0)
    reader = rig.source.reader = system.reader = CountedReader([500, 3, 500, 3, 3], watermark=3)
    rig.start()
    eventually(lambda: reader.polls > len(reader.counts) + 1)
    rig.stop()
    assert system.paused_after[:2] == [2, 5]


class TestConfirmed:
    def test_only_what_is_durable(self, rig: Rig) -> None:
        rig.start()
        eventually(lambda: rig.source.reader.polls)
        rig.store.before = Failing("create", "/log/", 1_000_000)
        rig.source.reader.batches.append(boundary(500))
        rig.control_thread.arrivals.put(asked("r"))
        eventually(lambda: rig.uploader.unavailable_since is not None)
        assert PostgresPosition(500) not in rig.source.reader.confirmed
        rig.store.before = lambda kind, key: None
        eventually(lambda: PostgresPosition(500) in rig.source.reader.confirmed)


class TestStoreBehind:
    def test_reading_stops_and_the_socket_is_not_asked_all_the_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rig = Rig(mark_timeout_s=0.05, catalog_interval_s=0.01)
        behind = Capture().upload_bytes_max + 1
        monkeypatch.setattr(Uploader, "pending_bytes", property(lambda self: behind))
        rig.start()
        eventually(lambda: rig.control_thread.statuses)
        time.sleep(0.2)  # four times as long as the log may be silent
        assert rig.control_thread.statuses[-1].note is not None
        assert (rig.source.reader.polls, rig.source.reader.waits, rig.ended) == (0, 0, [])
        rig.source.reader.batches.append(boundary(500))
        monkeypatch.undo()
        eventually(lambda: rig.session.core.state.position == PostgresPosition(500))
        rig.stop()

    def test_a_stop_does_not_wait_for_ever(self, rig: Rig) -> None:
        rig.start()
        eventually(lambda: rig.source.reader.polls)
        rig.store.before = Failing("create", "/log/", 1_000_000)
        rig.control_thread.arrivals.put(asked("r"))
        eventually(lambda: rig.uploader.unavailable_since is not None)
        rig.stopping.set()
        assert isinstance(rig.wait(), Unavailable)


class TestEnds:
    def test_a_silent_log_is_a_dead_connection(self) -> None:
        rig = Rig(mark_timeout_s=0.05, catalog_interval_s=0.01)
        rig.start()
        assert isinstance(rig.wait(), Unavailable)
        assert rig.source.reader.closed
        rig.stop()

    def test_marks_that_come_seldom_are_waited_for(self) -> None:
        rig = Rig(mark_timeout_s=0.05, catalog_interval_s=60.0)
        rig.start()
        eventually(lambda: rig.source.reader.polls)
        time.sleep(0.2)
        assert rig.ended == []
        rig.stop()

    @pytest.mark.parametrize("kind", [SourceLost, Unavailable, InvariantBroken])
    def test_a_thread_that_fails_ends_it_by_its_name(
        self, rig: Rig, kind: type[TidelineError]
    ) -> None:
        rig.source.watching.failure = kind("why")
        rig.start()
        assert isinstance(rig.wait(), kind)

    def test_so_does_the_desk(self, rig: Rig) -> None:
        rig.control_thread.failure = InvariantBroken("a bug")
        rig.start()
        assert isinstance(rig.wait(), InvariantBroken)

    def test_an_uploader_that_failed_before_the_first_turn_opens_no_reader(self, rig: Rig) -> None:
        def broken(kind: str, key: str) -> None:
            raise TidelineError("broken")

        rig.store.before = broken
        rig.start()
        assert isinstance(rig.wait(), TidelineError)
        assert not rig.source.opened


def test_an_answer_that_is_not_durable_is_told_to_nobody(rig: Rig) -> None:
    """Asked again, between the end of a request and the manifest that says so."""
    rig.start()
    eventually(lambda: rig.source.reader.polls)
    rig.session.core.state.recent.remember(replace(ENDED, request_id="fresh", manifest_number=None))
    rig.control_thread.arrivals.put(asked("fresh"))
    rig.control_thread.arrivals.put(asked("ended"))
    eventually(lambda: rig.control_thread.answers.count(ENDED) == 2)
    assert "fresh" not in {answer.request_id for answer in rig.control_thread.answers}


class TestStrangers:
    """What a session says of clocks that differ, and of marks that someone else writes."""

    def test_clocks_that_are_apart_are_noted_while_they_are(self, rig: Rig) -> None:
        ahead = time.time_ns() // 1000 + 7_200_000_000
        rig.source.watching.busy = SourceLoad(clock_us=ahead)
        rig.start()
        eventually(
            lambda: rig.control_thread.statuses and rig.control_thread.statuses[-1].note is not None
        )
        assert "ahead of this machine's" in str(rig.control_thread.statuses[-1].note)
        rig.source.watching.busy = right = SourceLoad(clock_us=time.time_ns() // 1000)
        rig.session._found.put(right)
        eventually(lambda: rig.control_thread.statuses[-1].note is None)

    def test_marks_of_somebody_else_are_named_once(self, rig: Rig) -> None:
        """Not their content, and not those that a session before may have left."""
        own, strange = Watermark(WatermarkKind.CATALOG_LOW, "t", 0), UnknownWatermark()
        batches = [
            LogBatch((), 0, (one,), None, False, np.array([1], np.int64))
            for one in (strange, own, strange, strange)
        ]
        with capture_logs() as reported:
            rig.source.reader.batches += batches
            rig.start()
            eventually(lambda: len(rig.control_thread.statuses) > 1)
            rig.stop()
        assert rig.session.core.unknown_watermarks == 2
        assert sum("looks like a watermark" in one["event"] for one in reported) == 1
