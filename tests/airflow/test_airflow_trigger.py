from __future__ import annotations

import asyncio
import time
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import msgspec
import pytest

from devtools.services.valkey import ValkeyServer
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_log import TaskLog
from tideline.contract.request import (
    Action,
    Answer,
    DumpRequest,
    RequestState,
    TableProgress,
    encode_request,
    parse_answer,
)
from tideline.control.exchange import Waits
from tideline_airflow import hooks
from tideline_airflow.progress import describe
from tideline_airflow.triggers import PROGRESS_S, DumpTrigger, News

REQUEST = DumpRequest("run/1", ("public.orders",))
RUNNING = Answer(
    "run/1",
    RequestState.RUNNING,
    tables=(TableProgress("public.orders", RequestState.RUNNING, 3, 12, rows=30),),
)


def test_progress_in_words() -> None:
    expected = "request run/1: running; public.orders running, chunk 3 of about 12, 30 rows"
    assert describe(RUNNING) == expected
    slowed = TableProgress(
        "public.orders",
        RequestState.THROTTLED,
        chunks=3,
        rows=30,
        rows_estimate=120,
        rows_per_s=14.6,
        remaining_s=6.2,
        waiting="running queries 9, limit 4",
    )
    text = describe(Answer("run/1", RequestState.THROTTLED, tables=(slowed,)))
    assert text == (
        "request run/1: throttled; public.orders throttled, chunk 3, 30 of about 120 rows,"
        " 15 a second, 0:00:06 left, waiting: running queries 9, limit 4"
    )


def test_of_many_tables_those_that_have_not_ended_come_first() -> None:
    done = [TableProgress(f"a.t{n}", RequestState.DONE) for n in range(40)]
    tables = (*done, TableProgress("a.last", RequestState.PAUSED))
    text = describe(Answer("all", RequestState.PAUSED, tables=tables))
    assert text.startswith("request all: paused; a.last paused, ")
    assert text.endswith("; … 41 tables, 40 ended")
    assert text.count(";") == 11


def test_another_state_is_news_at_once_and_progress_now_and_then() -> None:
    def running(rows: int, waiting: str | None = None) -> Answer:
        state = RequestState.RUNNING if waiting is None else RequestState.THROTTLED
        table = TableProgress("a.b", state, rows=rows, waiting=waiting)
        return Answer("r", state, tables=(table,))

    news = News()
    assert news.line(running(10), 0.0) is not None
    assert news.line(running(20), 1.0) is None
    assert news.line(running(20, "replica lag 9 s"), 2.0) is not None
    assert news.line(running(20, "replica lag 8 s"), 3.0) is None
    assert news.line(running(30), 4.0) is not None
    assert news.line(running(30), 4.0 + PROGRESS_S) is None, "nothing is new"
    assert "40 rows" in str(news.line(running(40), 4.0 + PROGRESS_S))
    assert news.line(running(50), 5.0 + PROGRESS_S) is None
    assert "50 rows" in str(news.line(None, 5.0 + 2 * PROGRESS_S)), "due, and nothing is newer"


def test_who_kills_the_task_ends_the_request_only_if_told(config: Path, worker: StubWorker) -> None:
    kept = make(config)
    asyncio.run(kept.on_kill())
    reported = make(config)
    reported.cancel_with_task = True
    path, values = reported.serialize()
    asyncio.run(resolve_name(path)(**values).on_kill())
    asyncio.run(until(lambda: len(worker.commands) == 1))
    (command,) = worker.commands
    assert (command.action, command.requests) == (Action.CANCEL, ("run/1",))


def test_a_redis_that_is_away_keeps_no_kill_from_ending(config: Path, valkey: ValkeyServer) -> None:
    reported = make(config)
    reported.cancel_with_task = True
    valkey.stop()
    try:
        asyncio.run(reported.on_kill())
    finally:
        valkey.start()


def test_no_key_is_in_what_is_logged_of_a_trigger(
    config: Path, worker: StubWorker, task_log: TaskLog
) -> None:
    request = DumpRequest("run/1", ("public.orders",), keys=(("canary-77",),))
    trigger = make(config)
    trigger.request = encode_request(request).decode()
    assert repr(trigger) == "<DumpTrigger run/1>"
    assert run(trigger)["status"] == "final"
    assert worker.requests["run/1"].keys == (("canary-77",),)
    assert "run/1" in task_log.text and "canary" not in task_log.text


def test_it_fires_with_the_final_answer(config: Path, worker: StubWorker) -> None:
    event = run(make(config, repeat_after_s=0.1))
    assert event["status"] == "final"
    assert parse_answer(event["answer"].encode()).state is RequestState.DONE
    assert set(worker.seen) == {"run/1"}


def test_a_flushed_redis_costs_time_only(
    config: Path, worker: StubWorker, valkey: ValkeyServer
) -> None:
    worker.delayed.set()
    trigger = make(config, repeat_after_s=0.3)

    async def flush_while_it_waits() -> Any:
        waiting = asyncio.ensure_future(first_event(trigger))
        await until(lambda: len(worker.seen) >= 1)
        await asyncio.to_thread(valkey.flush)
        before = len(worker.seen)
        await until(lambda: len(worker.seen) > before)
        worker.delayed.clear()
        return await waiting

    event = asyncio.run(flush_while_it_waits())
    assert event["status"] == "final"
    assert set(worker.seen) == {"run/1"}


def test_a_redis_that_is_away_is_waited_for(config: Path, valkey: ValkeyServer) -> None:
    async def stop_and_start() -> Any:
        waiting = asyncio.ensure_future(first_event(make(config, unanswered_timeout_s=1.5)))
        await asyncio.to_thread(valkey.stop)
        try:
            return await waiting
        finally:
            await asyncio.to_thread(valkey.start)

    event = asyncio.run(stop_and_start())
    assert event["status"] == "timeout"
    assert event["reason"].startswith("the control queue cannot be reached: ")
    assert "control.url" in event["reason"] and "tideline capture" not in event["reason"]


def test_without_a_worker_the_reason_is_clear(config: Path, valkey: ValkeyServer) -> None:
    event = run(make(config, unanswered_timeout_s=0.2))
    assert event["status"] == "timeout"
    assert "tideline capture" in event["reason"]


def test_the_whole_wait_is_bounded(config: Path, valkey: ValkeyServer) -> None:
    event = run(make(config, timeout_s=0.2))
    assert event == {"status": "timeout", "reason": "not done within 0.2 s; last seen: no answer"}


@pytest.mark.parametrize("cancels", [False, True])
def test_secrets_are_registered_on_the_event_loop(
    config: Path, valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch, cancels: bool
) -> None:
    """From a thread, Airflow 3.1 loses an answer of its supervisor, and its triggerer ends."""
    seen: list[str] = []
    password = "of-the-queue"

    def mask(secret: str) -> None:
        asyncio.get_running_loop()  # RuntimeError in a thread
        seen.append(secret)

    monkeypatch.setattr(hooks, "mask_secret", mask)
    monkeypatch.setattr(hooks, "_secrets", lambda _: [password])
    if cancels:
        asked = make(config)
        asked.cancel_with_task = True
        asyncio.run(asked.on_kill())
    else:
        run(make(config, timeout_s=0.2))
    assert seen == [password]


def test_it_survives_serialisation() -> None:
    one = make(Path("/x/tideline.toml"))
    path, values = one.serialize()
    again = resolve_name(path)(**msgspec.json.decode(msgspec.json.encode(values)))
    assert isinstance(again, DumpTrigger)
    assert again.serialize() == one.serialize()


def make(config: Path, **watch: float) -> DumpTrigger:
    waits: dict[str, float] = {"started_s": time.time(), "timeout_s": 120.0, **watch}
    values = msgspec.to_builtins(msgspec.convert({"poll_interval_s": 0.02, **waits}, Waits))
    return DumpTrigger(encode_request(REQUEST).decode(), values, str(config))


def run(trigger: DumpTrigger) -> Any:
    return asyncio.run(first_event(trigger))


async def first_event(trigger: DumpTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


async def until(condition: Any, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.01)
