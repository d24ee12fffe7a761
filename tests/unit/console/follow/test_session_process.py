"""The process of a merger's session, without Spark: how it ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tideline_console.follow import session_process
from tideline_console.follow.messages import Beat

PATIENCE_S = 60.0


def test_a_session_that_ends_is_not_taken_for_sick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beats stop when its rounds are over: Spark's context loses its Java as it stops."""
    heard, pipe = os.pipe()
    ends: list[int] = []
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    context = SimpleNamespace(_jsc=java, _gateway=None)
    statement = SimpleNamespace(collect=list)

    @contextmanager
    def spark_session(*_: object, **__: object) -> Iterator[Any]:
        before = set(threading.enumerate())
        yield SimpleNamespace(sparkContext=context, sql=lambda _: statement)
        context._jsc = None
        for thread in set(threading.enumerate()) - before:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    class Rounds:
        def __init__(self, *_: object) -> None: ...

        def beat(self) -> Beat:
            return Beat()

        def run(self) -> None:
            assert os.read(heard, 1)

    def end(status: int) -> None:
        ends.append(status)
        raise SystemExit

    monkeypatch.setattr(sys, "argv", ["session", "--beats", str(pipe)])
    monkeypatch.setattr(session_process, "BEAT_S", 0.01)
    monkeypatch.setattr(session_process, "Rounds", Rounds)
    monkeypatch.setattr(session_process, "spark_session", spark_session)
    for name in ("set_up_log", "load_settings", "PlanRuns", "_orders"):
        monkeypatch.setattr(session_process, name, lambda *_, **__: None)
    monkeypatch.setattr(os, "_exit", end)
    assert session_process.main() == 0
    assert ends == []
    for one in (heard, pipe):
        os.close(one)
