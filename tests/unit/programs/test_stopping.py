"""A stop is heard whatever the worker is waiting for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from tests.fixtures.systems import REAL
from tideline.contract.errors import Unavailable
from tideline.programs.stopping import stop_on_signals, unless_stopped

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
    assert unless_stopped(stopping, call, REAL) == "the lead"


def test_what_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tideline.programs.stopping.GRACE_S", 0.01)
    stopping, never = threading.Event(), threading.Event()
    stopping.set()
    assert unless_stopped(stopping, never.wait, REAL) is None
    never.set()


def test_errors_come_through() -> None:
    def fails() -> None:
        raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        unless_stopped(threading.Event(), fails, REAL)


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
