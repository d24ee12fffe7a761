"""The desk: what is claimed, sent and kept while the queue comes and goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from tests.fixtures.systems import REAL
from tideline.contract.errors import Unavailable
from tideline.contract.request import Answer, DumpRequest, RequestState
from tideline.control import WorkerStatus
from tideline_capture.control_thread import ControlThread
from tideline_capture.core.events import Arrival, RequestArrived, RequestRefused
from tideline_capture.queue import MESSAGES_MAX, RequestQueue

PATIENCE_S = 20.0
STATUS = WorkerStatus(
    writer="w",
    pipeline="p",
    state="live",
    host="h",
    pid=1,
    term=1,
    manifest_number=1,
    last_seq=0,
    updated_at_us=1,
)


class FakeQueue:
    """A queue in memory. ``away``: every call fails, as when Redis is not there."""

    def __init__(self) -> None:
        self.away = False
        self.refused = 0
        self.broken: BaseException | None = None
        self.pending: list[Arrival] = []
        self.claims = 0
        self.acknowledged: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.statuses: list[WorkerStatus] = []
        self.withdrawn: list[str] = []
        self.closed = False

    def _ask(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.away:
            self.refused += 1
            raise Unavailable("redis cannot be reached")

    def claim(self) -> list[Arrival]:
        self._ask()
        self.claims += 1
        found, self.pending = self.pending[:MESSAGES_MAX], self.pending[MESSAGES_MAX:]
        return found

    def acknowledge(self, ids: Sequence[str]) -> None:
        self._ask()
        self.acknowledged += ids

    def answer(self, answer: Answer) -> None:
        self._ask()
        self.answers[answer.request_id] = answer

    def publish(self, status: WorkerStatus) -> None:
        self._ask()
        self.statuses.append(status)

    def withdraw(self, writer: str) -> None:
        self._ask()
        self.withdrawn.append(writer)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    monkeypatch.setattr("tideline_capture.control_thread._POLL_S", 0.005)
    return FakeQueue()


@pytest.fixture
def control_thread(queue: FakeQueue) -> ControlThread:
    return ControlThread(cast(RequestQueue, queue), REAL)


def arrived(number: int) -> Arrival:
    request = DumpRequest(f"r{number}", ("public.t",))
    return RequestArrived(f"{number}-0", request)


def answer(request_id: str, state: RequestState = RequestState.DONE) -> Answer:
    return Answer(request_id, state)


def eventually(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


class TestClaiming:
    def test_only_an_active_worker_claims(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        queue.pending = [arrived(1)]
        control_thread.publish(STATUS)
        control_thread.start()
        eventually(lambda: queue.statuses)
        assert (queue.claims, len(queue.pending)) == (0, 1)
        control_thread.claiming = True
        found = control_thread.arrivals.get(timeout=PATIENCE_S)
        assert isinstance(found, RequestArrived)
        assert (found.message_id, found.request.request_id) == ("1-0", "r1")
        control_thread.stop("w")

    def test_what_is_no_request_is_handed_over_to_be_refused(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        queue.pending = [RequestRefused("1-0", "entry-1-0", "not JSON")]
        control_thread.claiming = True
        control_thread.start()
        found = control_thread.arrivals.get(timeout=PATIENCE_S)
        assert found == RequestRefused("1-0", "entry-1-0", "not JSON")
        control_thread.stop("w")

    def test_while_nobody_takes_them_no_more_are_claimed(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        """Entries that are not acknowledged come again and again: the source may be away long."""
        queue.pending = [arrived(number) for number in range(10 * MESSAGES_MAX)]
        control_thread.claiming = True
        control_thread.start()
        eventually(lambda: control_thread.arrivals.qsize() >= MESSAGES_MAX)
        control_thread.publish(STATUS)
        eventually(lambda: queue.statuses)
        control_thread.publish(STATUS)
        eventually(lambda: len(queue.statuses) > 1)
        assert control_thread.arrivals.qsize() < 2 * MESSAGES_MAX
        control_thread.stop("w")


class TestSlept:
    """Another worker may own the chain by now."""

    def test_nothing_is_claimed(self, control_thread: ControlThread, queue: FakeQueue) -> None:
        queue.pending = [arrived(1)]
        control_thread.claiming = True
        control_thread.owns = lambda: False
        control_thread.start()
        for _ in range(3):
            control_thread.publish(STATUS)
            eventually(lambda: queue.statuses)
            queue.statuses.clear()
        assert queue.claims == 0
        control_thread.owns = lambda: True
        assert control_thread.arrivals.get(timeout=PATIENCE_S)
        control_thread.stop("w")

    def test_answers_wait_until_it_is_proved(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        control_thread.owns = lambda: False
        control_thread.answer(answer("a", RequestState.RUNNING))
        control_thread.acknowledge(("1-0",))
        control_thread.publish(STATUS)
        control_thread.start()
        eventually(lambda: queue.statuses)
        assert (queue.answers, queue.acknowledged) == ({}, [])
        control_thread.owns = lambda: True
        eventually(lambda: queue.answers and queue.acknowledged)
        control_thread.stop("w")

    def test_one_that_ends_says_nothing_more(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        """It would write over the answer of the one that took over."""
        control_thread.owns = lambda: False
        control_thread.start()
        control_thread.answer(answer("a", RequestState.RUNNING))
        control_thread.stop("w")
        assert queue.answers == {}
        assert queue.withdrawn == ["w"]


class TestQueueAway:
    def test_the_newest_answers_are_kept(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        queue.away = True
        control_thread.start()
        control_thread.answer(answer("a", RequestState.RUNNING))
        control_thread.answer(answer("b"))
        eventually(lambda: queue.refused > 1)
        control_thread.answer(answer("a"))
        queue.away = False
        eventually(lambda: set(queue.answers) == {"a", "b"})
        control_thread.stop("w")
        assert queue.answers["a"].state is RequestState.DONE

    def test_an_older_answer_never_replaces_a_newer_one(
        self, control_thread: ControlThread, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sent: list[RequestState] = []

        def send(given: Answer) -> None:
            sent.append(given.state)
            if len(sent) == 1:
                control_thread.answer(answer("a"))
                raise Unavailable("in the middle")

        monkeypatch.setattr(queue, "answer", send)
        control_thread.start()
        control_thread.answer(answer("a", RequestState.RUNNING))
        eventually(lambda: len(sent) > 1)
        control_thread.stop("w")
        assert sent == [RequestState.RUNNING, RequestState.DONE]

    def test_claiming_goes_on_afterwards(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        queue.away = True
        queue.pending = [arrived(1)]
        control_thread.claiming = True
        control_thread.start()
        eventually(lambda: queue.refused > 1)
        assert control_thread.arrivals.empty() and control_thread.failure is None
        queue.away = False
        assert control_thread.arrivals.get(timeout=PATIENCE_S)
        control_thread.stop("w")

    def test_it_is_said_once_and_when_it_is_over(
        self, control_thread: ControlThread, queue: FakeQueue, capsys: pytest.CaptureFixture[str]
    ) -> None:
        queue.away = True
        control_thread.claiming = True
        control_thread.start()
        eventually(lambda: queue.refused > 5)
        queue.away = False
        queue.pending = [arrived(1)]
        assert control_thread.arrivals.get(timeout=PATIENCE_S)
        control_thread.stop("w")
        out = capsys.readouterr().out
        assert (out.count("is unavailable"), out.count("is back")) == (1, 1)

    def test_a_stop_does_not_wait_for_it(
        self, control_thread: ControlThread, queue: FakeQueue
    ) -> None:
        queue.away = True
        control_thread.start()
        control_thread.stop("w")
        assert queue.closed and queue.withdrawn == []


def test_a_stop_sends_what_is_left(control_thread: ControlThread, queue: FakeQueue) -> None:
    control_thread.start()
    control_thread.answer(answer("a"))
    control_thread.acknowledge(("1-0", "2-0"))
    control_thread.stop("w")
    assert set(queue.answers) == {"a"}
    assert queue.acknowledged == ["1-0", "2-0"]
    assert queue.withdrawn == ["w"] and queue.closed


def test_a_bug_of_ours_is_not_survived_in_silence(
    control_thread: ControlThread, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    queue.broken = ZeroDivisionError("a bug")
    control_thread.claiming = True
    control_thread.start()
    eventually(lambda: not control_thread._thread.is_alive())
    assert isinstance(control_thread.failure, ZeroDivisionError)
