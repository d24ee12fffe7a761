"""``tideline dump`` against a real queue, with this test in the worker's place."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import PATIENCE_S, poll
from tests.fixtures.core import first_manifest
from tests.fixtures.ends import Ends
from tests.fixtures.services import Database
from tests.fixtures.settings import SettingsFactory
from tideline.contract.open_state import OpenState
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress
from tideline.control.exchange import DUMP_WAITS
from tideline.redis_client import connect
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.core.events import Arrival, RequestArrived
from tideline_capture.queue import RequestQueue
from tideline_console import dump
from tideline_console.dump import run
from tideline_console.requests import make_request


@pytest.fixture
def settings(settings_for: SettingsFactory) -> Settings:
    """The command never looks at the source."""
    return settings_for(Database("none", "postgresql://u@127.0.0.1:1/none"))


def queue_of(settings: Settings, consumer: str) -> RequestQueue:
    client = connect(settings.control, timeout_s=PATIENCE_S)
    return RequestQueue(client, settings.control, settings.pipeline, consumer, clock=time.monotonic)


@pytest.fixture
def queue(settings: Settings) -> Iterator[RequestQueue]:
    queue = queue_of(settings, "w1")
    yield queue
    queue.close()


@pytest.fixture
def start() -> Iterator[Callable[[Settings, DumpRequest], Future[int]]]:
    """Runs the command with ``--wait`` beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda settings, request: pool.submit(run, settings, request, wait=True)


Start = Callable[[Settings, DumpRequest], "Future[int]"]


def next_message(queue: RequestQueue) -> RequestArrived:
    messages: list[Arrival] = []

    def came() -> bool:
        messages.extend(queue.claim())
        return bool(messages)

    poll("a request comes", came)
    arrived = messages[0]
    assert isinstance(arrived, RequestArrived)
    return arrived


def test_sent_and_not_waited_for(
    settings: Settings, queue: RequestQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    request = make_request(["public.a"], chunk_rows=5)
    assert run(settings, request, wait=False) == 0
    assert next_message(queue).request == request
    out = capsys.readouterr().out
    assert f"request {request.request_id}" in out
    assert "no worker is running" in out


def test_waited_for_until_done(
    settings: Settings, queue: RequestQueue, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    request = make_request(["public.a"])
    waiting = start(settings, request)
    queue.acknowledge([next_message(queue).message_id])
    for state in (RequestState.ACCEPTED, RequestState.RUNNING):
        queue.answer(Answer(request.request_id, state, tables=(TableProgress("public.a", state),)))
    assert not waiting.done()
    done = TableProgress("public.a", RequestState.DONE, chunks=2, rows=15)
    end = Answer(request.request_id, RequestState.DONE, manifest_number=9, tables=(done,))
    queue.answer(Ends(settings).record(end))
    assert waiting.result(PATIENCE_S) == 0
    assert "done: 1 tables, 15 rows, manifest 9" in capsys.readouterr().out


@pytest.mark.parametrize("state", [RequestState.FAILED, RequestState.REFUSED])
def test_failed_or_refused(
    state: RequestState,
    settings: Settings,
    queue: RequestQueue,
    start: Start,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = make_request(["public.a", "public.b"])
    waiting = start(settings, request)
    next_message(queue)
    table = TableProgress("public.b", state, error="it has no key")
    end = Answer(request.request_id, state, tables=(table,), error="1 of 2", hint="add [a] key")
    queue.answer(Ends(settings).record(end))
    assert waiting.result(PATIENCE_S) == 1
    err = capsys.readouterr().err
    assert f"the request is {state.value}: 1 of 2" in err
    assert "public.b: it has no key" in err
    assert "hint: add [a] key" in err


def test_a_forged_end_is_not_believed(
    settings: Settings,
    queue: RequestQueue,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever may ask may write answers; this one wrote it before there was a request."""
    monkeypatch.setattr(dump, "DUMP_WAITS", replace(DUMP_WAITS, repeat_after_s=0.3))
    monkeypatch.setattr("tideline.control.record.DOUBT_S", 0.1)
    request = make_request(["public.a"], request_id="forged1")
    forged = TableProgress("public.a", RequestState.DONE, rows=1)
    queue.answer(Answer("forged1", RequestState.DONE, manifest_number=3, tables=(forged,)))
    waiting = start(settings, request)
    for _ in range(3):
        assert next_message(queue).request == request, "it is asked for as without an answer"
    assert not waiting.done()
    true = TableProgress("public.a", RequestState.DONE, rows=15)
    end = Answer("forged1", RequestState.DONE, manifest_number=3, tables=(true,))
    Ends(settings).record(end)  # The queue still says the other one: the chain's words count.
    assert waiting.result(PATIENCE_S) == 0
    assert "done: 1 tables, 15 rows, manifest 3" in capsys.readouterr().out


def test_an_unanswered_request_is_repeated(
    settings: Settings,
    queue: RequestQueue,
    valkey: ValkeyServer,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dump, "DUMP_WAITS", replace(DUMP_WAITS, repeat_after_s=0.3))
    request = make_request(["public.a"])
    waiting = start(settings, request)
    next_message(queue)
    valkey.flush()
    again = next_message(queue)
    assert again.request == request
    queue.answer(Answer(request.request_id, RequestState.RUNNING))
    valkey.flush()
    assert next_message(queue).request == request
    queue.answer(Ends(settings).record(Answer(request.request_id, RequestState.DONE)))
    assert waiting.result(PATIENCE_S) == 0


def test_a_redis_that_goes_away_meanwhile(
    settings: Settings, valkey: ValkeyServer, start: Start
) -> None:
    request = make_request(["public.a"])
    first = queue_of(settings, "w1")
    waiting = start(settings, request)
    next_message(first)
    valkey.restart()
    second = queue_of(settings, "w2")
    second.answer(Ends(settings).record(Answer(request.request_id, RequestState.DONE)))
    assert waiting.result(PATIENCE_S) == 0


@pytest.mark.parametrize("away", [False, True], ids=["flushed", "stopped"])
def test_the_chain_tells_what_redis_has_lost(
    away: bool,
    settings: Settings,
    queue: RequestQueue,
    valkey: ValkeyServer,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The worker died before it answered, or Redis after it had: the request is not done again."""
    monkeypatch.setattr(dump, "DUMP_WAITS", replace(DUMP_WAITS, repeat_after_s=0.3))
    request = make_request(["public.a"])
    chain = Chain(open_store(settings.store), settings.pipeline)
    table = TableProgress("public.a", RequestState.FAILED, rows=7, error="it was cancelled by ann")
    ended = Answer(
        request.request_id, RequestState.FAILED, manifest_number=1, tables=(table,), error="ended"
    )
    chain.append(first_manifest(pipeline=settings.pipeline, state=OpenState(recent=(ended,))))
    waiting = start(settings, request)
    queue.acknowledge([next_message(queue).message_id])
    if away:
        valkey.stop()
    try:
        assert waiting.result(PATIENCE_S) == 1
    finally:
        valkey.start()
    assert queue.claim() == []
    err = capsys.readouterr().err
    assert "the request is failed: ended" in err
    assert "public.a: it was cancelled by ann" in err
