"""A stop is heard whatever the worker is waiting for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest
from stamina.instrumentation import RetryDetails, set_on_retry_hooks
from structlog.testing import capture_logs

from tests.unit.store.scripted_s3 import Fault, ScriptedS3
from tideline.contract.errors import Unavailable
from tideline.store.objects import open_store
from tideline_capture.retries import _tell, tell_retries
from tideline_capture.stopping import stop_on_signals, unless_stopped

PATIENCE_S = 120.0


def test_what_ends_in_time_is_taken() -> None:
    """A takeover that is under way is not left behind: it is released like any other."""
    stopping, under_way = threading.Event(), threading.Event()

    def call() -> str:
        under_way.set()
        assert stopping.wait(PATIENCE_S)
        return "the lead"

    def stop() -> None:
        assert under_way.wait(PATIENCE_S)
        stopping.set()

    threading.Thread(target=stop, daemon=True).start()
    assert unless_stopped(stopping, call) == "the lead"


def test_what_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline_capture.stopping.GRACE_S", 0.01)
    stopping, never = threading.Event(), threading.Event()
    stopping.set()
    assert unless_stopped(stopping, never.wait) is None
    never.set()


def test_errors_come_through() -> None:
    def fails() -> None:
        raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        unless_stopped(threading.Event(), fails)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_signal_is_a_stop(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    stopping = threading.Event()
    stop_on_signals(stopping)
    signal.raise_signal(number)
    assert stopping.is_set()


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT], ids=lambda one: one.name)
def test_what_nohup_or_a_shell_ignores_stays_ignored(ignored: signal.Signals) -> None:
    signal.signal(ignored, signal.SIG_IGN)
    stopping = threading.Event()
    stop_on_signals(stopping)
    signal.raise_signal(ignored)
    assert not stopping.is_set()
    signal.raise_signal(signal.SIGTERM)
    assert stopping.is_set()


@pytest.fixture
def restored() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_store_that_is_asked_again_is_told_in_our_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on standard output, where a command's JSON goes, nor with the library's arguments."""
    with ScriptedS3() as server, capture_logs() as logs:
        server.faults.extend([Fault()] * 1_000)
        store = open_store(server.settings(retry_s=0.3))
        with pytest.raises(Unavailable):
            store.get("k")
        assert len(server.requests) > 1
        assert (logs, capsys.readouterr().out) == ([], "")
        monkeypatch.setattr("tideline_capture.retries.TOLD_AFTER_S", 0.1)
        tell_retries()
        try:
            with pytest.raises(Unavailable):
                store.get("k")
        finally:
            set_on_retry_hooks([])
    assert {line["event"] for line in logs} == {"the store does not answer; it is asked again"}
    assert all(line["waited_s"] >= 0.1 for line in logs)
    assert "get k: status 500" in logs[0]["reason"]


def test_time_outs_count_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that takes ten seconds to not answer the second failure is told, though the pauses
    between were short."""
    now = iter([100.0, 100.0, 110.0, 200.0, 200.0])
    monkeypatch.setattr("tideline_capture.retries.monotonic", lambda: next(now))
    failed = Unavailable("get k: timed out")
    with capture_logs() as logs:
        for number in (1, 2, 1):
            _tell(RetryDetails("get", (), {}, number, 0.2, 0.1, failed))
    assert [line["waited_s"] for line in logs] == [10.2]
