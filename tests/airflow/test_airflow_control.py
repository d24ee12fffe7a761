"""The ControlOperator against a real queue: one command, whatever is tried again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from devtools.services.valkey import ValkeyServer
from tests.airflow.stub_worker import ENDED_AT, StubWorker
from tests.airflow.task_context import TaskContext
from tideline.contract.errors import Unavailable
from tideline.contract.request import Action, Answer, Command, RequestState
from tideline.control.client import RequestClient
from tideline.control.exchange import COMMAND_WAITS
from tideline.settings import Settings
from tideline_airflow import control
from tideline_airflow.compat import AirflowFailException
from tideline_airflow.control import ControlOperator
from tideline_airflow.hooks import TidelineHook

FORM = {"action": "pause", "requests": None, "all": False, "chunk_rows": None, "delay_ms": None}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # The worker lists repeats, too.
    quick = replace(COMMAND_WAITS, poll_interval_s=0.02, repeat_after_s=600.0)
    monkeypatch.setattr(control, "COMMAND_WAITS", quick)


def tell(config: Path, **params: Any) -> Any:
    task = ControlOperator(task_id="control", config=str(config), timeout_s=60.0)
    return task.execute(TaskContext(task, params={**FORM, **params}).values)


def test_what_the_form_says_is_done(config: Path, worker: StubWorker) -> None:
    result = tell(config, requests=["run/1", "cli-2"])
    (command,) = worker.commands
    assert (command.action, command.requests) == (Action.PAUSE, ("run/1", "cli-2"))
    assert command.requested_by == "airflow tideline_repair"
    assert result == {"command_id": command.command_id, "manifest_number": ENDED_AT}
    assert tell(config, requests=["run/1", "cli-2"]) == result, "a retry is the same command"
    assert len(worker.commands) == 1


def test_another_throttle_for_all(config: Path, worker: StubWorker) -> None:
    tell(config, action="tune", all=True, chunk_rows="default", delay_ms="20")
    (command,) = worker.commands
    assert (command.action, command.requests) == (Action.TUNE, None)
    assert (command.chunk_rows, command.delay_ms) == ("default", 20)


def test_in_a_dag_of_ones_own(config: Path, worker: StubWorker) -> None:
    task = ControlOperator(task_id="stop", action="cancel", requests=["run/1"], config=str(config))
    task.execute(TaskContext(task).values)
    assert worker.commands[0].requests == ("run/1",)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "one of the two"),
        ({"all": True, "requests": ["run/1"]}, "one of the two"),
        ({"all": True, "action": "stop"}, "pause, resume, cancel or tune"),
        ({"all": True, "chunk_rows": "5"}, "are for tune; correct it"),
        ({"all": True, "action": "tune"}, "tune needs chunk_rows or delay_ms"),
        ({"requests": ["a b"]}, "plain characters"),
    ],
    ids=str,
)
def test_what_does_not_fit(config: Path, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(AirflowFailException, match=words):
        tell(config, **wrong)


def test_a_refusal_fails_for_good(config: Path, worker: StubWorker) -> None:
    worker.refusal = "not open: run/1"
    with pytest.raises(AirflowFailException, match="the worker says refused: not open: run/1"):
        tell(config, requests=["run/1"])


@pytest.mark.usefixtures("valkey")
def test_a_forged_answer_is_none(
    config: Path, worker: StubWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may ask may write answers: a command that the chain does not have is not done."""
    worker.delayed.set()
    monkeypatch.setattr(worker, "say", worker.forge)
    task = ControlOperator(
        task_id="s", action="pause", every=True, config=str(config), timeout_s=1.0
    )
    with pytest.raises(Unavailable, match="no worker answered"):
        task.execute(TaskContext(task).values)
    assert worker.commands


def test_nobody_answers(config: Path) -> None:
    task = ControlOperator(
        task_id="s", action="pause", every=True, config=str(config), timeout_s=0.3
    )
    with pytest.raises(Unavailable, match="tideline capture"):
        task.execute(TaskContext(task).values)


def test_a_machine_that_stood_still_past_the_end_looks_once_more(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command was done meanwhile; a try that fails would say that nobody answered."""
    now_s = [0.0]
    sent: list[Command] = []
    answers: list[Answer] = []

    def stand_still(_: float) -> None:
        now_s[0] += 1_000.0
        answers.append(Answer(sent[0].command_id, RequestState.DONE, manifest_number=ENDED_AT))

    control_client = SimpleNamespace(
        answer=lambda _: answers[0] if answers else None, command=sent.append, close=lambda: None
    )
    record = SimpleNamespace(confirmed=lambda answer: answer)
    monkeypatch.setattr(TidelineHook, "control_client", lambda _: control_client)
    monkeypatch.setattr(TidelineHook, "record", lambda _: record)
    client = partial(RequestClient, clock=lambda: now_s[0], sleep=stand_still)
    monkeypatch.setattr(control, "RequestClient", client)
    assert tell(config, requests=["run/1"])["manifest_number"] == ENDED_AT


def test_a_queue_that_is_away_is_waited_for(
    config: Path, settings: Settings, valkey: ValkeyServer
) -> None:
    with ThreadPoolExecutor(1) as pool:
        valkey.stop()
        try:
            task = ControlOperator(task_id="s", action="pause", every=True, config=str(config))
            doing = pool.submit(task.execute, TaskContext(task).values)
            with pytest.raises(TimeoutError):
                doing.result(0.5)
        finally:
            valkey.start()
        with StubWorker(settings):
            assert doing.result(60)["manifest_number"] == ENDED_AT


def test_a_queue_that_stays_away_is_named(config: Path, valkey: ValkeyServer) -> None:
    task = ControlOperator(
        task_id="s", action="pause", every=True, config=str(config), timeout_s=0.3
    )
    valkey.stop()
    try:
        with pytest.raises(Unavailable, match="redis"):
            task.execute(TaskContext(task).values)
    finally:
        valkey.start()
