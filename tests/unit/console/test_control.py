"""Commands from the terminal: what is sent, sent again, and said of the answer."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest

from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.request import Action, Answer, Command, RequestState
from tideline.control.client import RequestClient
from tideline.settings import Settings
from tideline_console import control
from tideline_console.control import make_command, run


class Worker:
    """An asker whose worker answers the ``answers_at``-th sending."""

    def __init__(self, state: RequestState, *, answers_at: int = 1) -> None:
        self.sent: list[Command] = []
        self._state = state
        self._answers_at = answers_at

    def close(self) -> None:
        """Nothing is open."""

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


class Chain:
    """The chain's record: it has the ends that the queue reports, unless it is ``blind``."""

    def __init__(self, *looks: Answer | None, blind: bool = False) -> None:
        self._looks = list(looks)
        self._blind = blind

    def confirmed(self, answer: Answer | None) -> Answer | None:
        return None if self._blind else answer

    def answer(self, command_id: str) -> Answer | None:
        return self._looks.pop(0) if self._looks else None


def sent(
    monkeypatch: pytest.MonkeyPatch, worker: Worker, command: Command, chain: Chain | None = None
) -> int:
    """Time passes while it is waited, and no other."""
    now = [0.0]
    monkeypatch.setattr(control, "ControlClient", lambda control, pipeline: worker)
    monkeypatch.setattr(control, "Record", lambda settings: chain or Chain())
    waiting = partial(
        RequestClient, clock=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s)
    )
    monkeypatch.setattr(control, "RequestClient", waiting)
    return run(SETTINGS, command)


PAUSE = make_command(Action.PAUSE, ["x"])


def test_it_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    worker = Worker(RequestState.DONE)
    assert sent(monkeypatch, worker, PAUSE) == 0
    assert capsys.readouterr().out == "pause: done, manifest 7\n"
    assert worker.sent == [PAUSE]


def test_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert sent(monkeypatch, Worker(RequestState.REFUSED), PAUSE) == 1
    assert "not open: x" in capsys.readouterr().err


def test_without_an_answer_it_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(RequestState.DONE, answers_at=3)
    assert sent(monkeypatch, worker, PAUSE) == 0
    assert worker.sent == [PAUSE] * 3


def test_a_redis_that_goes_away_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has done it, and nobody can hear: the chain has it."""
    worker = Worker(RequestState.DONE)

    def gone(command_id: str) -> Answer:
        raise Unavailable("redis did not answer in time")

    monkeypatch.setattr(worker, "answer", gone)
    known = Answer(PAUSE.command_id, RequestState.DONE, manifest_number=9)
    assert sent(monkeypatch, worker, PAUSE, Chain(None, known)) == 0
    assert worker.sent == [PAUSE]


def test_a_redis_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have lost the command: it is not said that it waits."""
    worker = Worker(RequestState.DONE)

    def gone(command_id: str) -> Answer:
        raise Unavailable("redis did not answer in time", hint="see control.url")

    monkeypatch.setattr(worker, "answer", gone)
    with pytest.raises(Unavailable) as caught:
        sent(monkeypatch, worker, PAUSE)
    words = "the control queue cannot be reached: redis did not answer in time; see control.url"
    assert str(caught.value) == words


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no worker answered"):
        sent(monkeypatch, Worker(RequestState.DONE, answers_at=99), PAUSE)


def test_a_forged_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(RequestState.DONE)
    with pytest.raises(Unavailable, match="no worker answered"):
        sent(monkeypatch, worker, PAUSE, Chain(blind=True))
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


def test_throttles() -> None:
    command = make_command(Action.TUNE, [], every=True, chunk_rows="default", delay_ms="20")
    assert (command.requests, command.chunk_rows, command.delay_ms) == (None, "default", 20)
    with pytest.raises(Misconfigured, match="--delay-ms must be a number"):
        make_command(Action.TUNE, ["x"], delay_ms="slow")
