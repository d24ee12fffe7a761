"""Commands from the terminal: what is sent, sent again, and said of the answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import Action, Answer, Command, RequestState
from tideline.settings import Settings
from tideline_console import steer
from tideline_console.steer import make_command, run


class Worker:
    """An asker whose worker answers the ``answers_at``-th sending."""

    def __init__(self, state: RequestState, *, answers_at: int = 1) -> None:
        self.sent: list[Command] = []
        self._state = state
        self._answers_at = answers_at

    def command(self, command: Command) -> None:
        self.sent.append(command)

    def answer(self, command_id: str) -> Answer | None:
        if len(self.sent) < self._answers_at:
            return None
        error = None if self._state is RequestState.DONE else "not open: x"
        return Answer(command_id, self._state, manifest_number=7, error=error, hint="look")


class _Settings:
    control = pipeline = None


SETTINGS = cast(Settings, _Settings())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes while it is waited, and no other."""
    now = [0.0]
    monkeypatch.setattr("tideline_console.steer.clock.monotonic", lambda: now[0])
    monkeypatch.setattr(
        "tideline_console.steer.clock.sleep", lambda s: now.__setitem__(0, now[0] + s)
    )


def told(
    monkeypatch: pytest.MonkeyPatch, worker: Worker, command: Command, *, in_chain: bool = True
) -> int:
    """``in_chain``: the chain has what the queue says."""
    monkeypatch.setattr(steer, "Asker", lambda control, pipeline: worker)
    heard = (lambda self, answer: answer) if in_chain else (lambda self, answer: None)
    monkeypatch.setattr("tideline_console.steer.Record.confirmed", heard)
    return run(SETTINGS, command)


PAUSE = make_command(Action.PAUSE, ["x"])


def test_it_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker(RequestState.DONE)
    assert told(monkeypatch, worker, PAUSE) == 0
    assert capsys.readouterr().out == "pause: done, manifest 7\n"
    assert worker.sent == [PAUSE]


def test_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(monkeypatch, Worker(RequestState.REFUSED), PAUSE) == 1
    assert "not open: x" in capsys.readouterr().err


@pytest.mark.usefixtures("clock")
def test_without_an_answer_it_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(RequestState.DONE, answers_at=3)
    assert told(monkeypatch, worker, PAUSE) == 0
    assert worker.sent == [PAUSE] * 3


@pytest.mark.usefixtures("clock")
def test_a_redis_that_goes_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has done it, and nobody can hear: the chain has it."""
    worker = Worker(RequestState.DONE)

    def gone(command_id: str) -> Answer:
        raise Unavailable("redis did not answer in time")

    monkeypatch.setattr(worker, "answer", gone)
    known = Answer(PAUSE.command_id, RequestState.DONE, manifest_number=9)
    looks = iter([None, known])
    monkeypatch.setattr(
        "tideline_console.steer.Record.answer", lambda self, command_id: next(looks)
    )
    assert told(monkeypatch, worker, PAUSE) == 0
    assert worker.sent == [PAUSE]


@pytest.mark.usefixtures("clock")
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no worker answered"):
        told(monkeypatch, Worker(RequestState.DONE, answers_at=99), PAUSE)


@pytest.mark.usefixtures("clock")
def test_a_forged_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(RequestState.DONE)
    with pytest.raises(Unavailable, match="no worker answered"):
        told(monkeypatch, worker, PAUSE, in_chain=False)
    assert len(worker.sent) > 1


@pytest.mark.parametrize(
    ("requests", "options", "reason"),
    [
        ([], {}, "one of the two"),
        (["x"], {"every": True}, "one of the two"),
        (["x y"], {}, "plain characters"),
        (["x"], {"chunk_rows": "5"}, "are for tune"),
    ],
)
def test_what_does_not_fit(requests: list[str], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        make_command(Action.PAUSE, requests, **options)


def test_paces() -> None:
    command = make_command(Action.TUNE, [], every=True, chunk_rows="default", delay_ms="20")
    assert (command.requests, command.chunk_rows, command.delay_ms) == (None, "default", 20)
    with pytest.raises(Misconfigured, match="--delay-ms must be a number"):
        make_command(Action.TUNE, ["x"], delay_ms="slow")
