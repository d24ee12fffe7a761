"""The DumpOperator against a real queue: one request, whatever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)

from console.services.valkey import ValkeyServer
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import FakeRun, TaskContext
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    TableProgress,
    encode_answer,
    parse_request,
)
from tideline.control import Asker
from tideline.settings import Settings
from tideline_airflow.identity import identity_of
from tideline_airflow.operators import DumpOperator
from tideline_airflow.triggers import DumpTrigger


@pytest.fixture
def ask(config: Path) -> DumpOperator:
    return DumpOperator(
        task_id="ask", tables=["public.orders"], config=str(config), retries=2, delay_ms=5
    )


def test_it_asks_and_defers_with_the_same_request(
    ask: DumpOperator, worker: StubWorker, config: Path
) -> None:
    worker.held.set()
    trigger = deferred(ask)
    until(lambda: len(worker.seen) == 1)
    assert isinstance(trigger, DumpTrigger)
    request = parse_request(trigger.request.encode())
    assert request == next(iter(worker.requests.values()))
    assert request.tables == ("public.orders",)
    assert request.delay_ms == 5
    assert request.requested_by == "airflow tideline_repair"
    assert trigger.config == str(config)


def test_a_retry_joins_the_request_of_a_killed_try(ask: DumpOperator, worker: StubWorker) -> None:
    """The first try was killed after it had sent; the worker has not answered yet."""
    worker.held.set()
    deferred(ask, try_number=1)
    deferred(ask, try_number=2)
    until(lambda: len(worker.seen) == 2)
    assert len(worker.requests) == 1


def test_a_retry_of_a_request_under_way_sends_nothing(
    ask: DumpOperator, worker: StubWorker
) -> None:
    worker.replace_dump(lambda request: Answer(request.request_id, RequestState.RUNNING))
    deferred(ask, try_number=1)
    until_answered(ask, worker)
    deferred(ask, try_number=2)
    time.sleep(0.1)  # a second message would be read by now
    assert len(worker.seen) == 1


def test_a_retry_after_the_end_takes_the_result(ask: DumpOperator, worker: StubWorker) -> None:
    deferred(ask, try_number=1)
    until_answered(ask, worker)
    result = ask.execute(TaskContext(ask, try_number=2).values)
    assert result == {
        "request_id": next(iter(worker.requests)),
        "manifest_number": 7,
        "tables": {"public.orders": 3},
    }
    assert len(worker.seen) == 1


def test_clearing_the_task_asks_anew(ask: DumpOperator, worker: StubWorker) -> None:
    deferred(ask)
    until_answered(ask, worker)
    deferred(ask, clears=1, try_number=2)
    until(lambda: len(worker.requests) == 2)


@pytest.mark.parametrize("state", [RequestState.FAILED, RequestState.REFUSED])
def test_the_workers_words_reach_the_user(ask: DumpOperator, state: RequestState) -> None:
    table = TableProgress("public.orders", state, error="it has no key")
    answer = Answer("r", state, tables=(table,), error="nothing to dump", hint="add a key")
    event = {"status": "final", "answer": encode_answer(answer).decode()}
    words = f"the worker says {state.value}: nothing to dump; public.orders: it has no key; add"
    with pytest.raises(AirflowFailException, match=words):
        ask.collect({}, event)


def test_a_time_out_may_be_tried_again(ask: DumpOperator) -> None:
    with pytest.raises(AirflowException, match="nobody is there") as caught:
        ask.collect({}, {"status": "timeout", "reason": "nobody is there"})
    assert not isinstance(caught.value, AirflowFailException)


def test_without_tables_only_a_scheduled_run_is_skipped(config: Path) -> None:
    ask = DumpOperator(task_id="ask", tables=[], config=str(config))
    with pytest.raises(AirflowSkipException):
        ask.execute(TaskContext(ask, run=FakeRun("scheduled")).values)
    for run_type in ("manual", "backfill"):
        with pytest.raises(AirflowFailException, match="name at least one table"):
            ask.execute(TaskContext(ask, run=FakeRun(run_type)).values)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, None),
        ([], None),
        (["7", "8"], (("7",), ("8",))),
        ([7, 8], (("7",), ("8",))),
        ([["7", "2"], [8, 3]], (("7", "2"), ("8", "3"))),
    ],
)
def test_keys_as_people_write_them(
    config: Path, worker: StubWorker, given: Any, sent: tuple[tuple[str, ...], ...] | None
) -> None:
    ask = DumpOperator(task_id="ask", tables=["public.orders"], keys=given, config=str(config))
    deferred(ask)
    until(lambda: len(worker.requests) == 1)
    assert next(iter(worker.requests.values())).keys == sent


def test_a_time_range_goes_out_as_the_interval(config: Path, worker: StubWorker) -> None:
    bounds = {"column": "placed_at", "from": "2026-11-20T00:00:00+00:00", "to": "2026-11-21"}
    ask = DumpOperator(task_id="ask", tables=["public.orders"], time=bounds, config=str(config))
    deferred(ask)
    until(lambda: len(worker.requests) == 1)
    time_range = next(iter(worker.requests.values())).time
    assert time_range is not None
    assert (time_range.column, time_range.start, time_range.end) == tuple(bounds.values())


def test_a_backfill_needs_its_column(config: Path) -> None:
    bounds = {"column": None, "from": "2026-11-20", "to": "2026-11-21"}
    ask = DumpOperator(task_id="ask", tables=["public.orders"], time=bounds, config=str(config))
    with pytest.raises(AirflowFailException, match="name the time column"):
        ask.execute(TaskContext(ask).values)


@pytest.mark.parametrize(
    "wrong", [{"keys": ["1"], "tables": ["a.b", "a.c"]}, {"chunk_rows": 0}, {"delay_ms": -1}]
)
def test_a_request_that_no_worker_takes_fails_at_once(
    config: Path, valkey: ValkeyServer, wrong: dict[str, Any]
) -> None:
    values: dict[str, Any] = {"tables": ["public.orders"], "config": str(config), **wrong}
    ask = DumpOperator(task_id="ask", **values)
    with pytest.raises(AirflowFailException, match="not valid"):
        ask.execute(TaskContext(ask).values)


def test_no_secret_is_in_what_airflow_keeps(
    ask: DumpOperator, settings: Settings, worker: StubWorker
) -> None:
    trigger = deferred(ask)
    kept = repr([getattr(ask, name) for name in ask.template_fields]) + repr(trigger.serialize())
    for secret in (settings.control.url.get_secret_value(), "hush-source"):
        assert secret not in kept


def deferred(ask: DumpOperator, **context: Any) -> DumpTrigger:
    with pytest.raises(TaskDeferred) as caught:
        ask.execute(TaskContext(ask, **context).values)
    assert caught.value.method_name == "collect"
    assert isinstance(caught.value.trigger, DumpTrigger)
    return caught.value.trigger


def until_answered(ask: DumpOperator, worker: StubWorker) -> None:
    request = identity_of(TaskContext(ask).values).name
    settings = worker.settings
    asker = Asker(settings.control, settings.pipeline)
    until(lambda: asker.answer(request) is not None)
    asker.close()


def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def test_the_stub_repeats_itself(worker: StubWorker) -> None:
    """The stand-in does what a worker owes: the same id twice is one request."""
    asker = Asker(worker.settings.control, worker.settings.pipeline)
    for _ in range(2):
        asker.ask(DumpRequest("again", ("public.orders",)))
    until(lambda: worker.seen == ["again", "again"])
    assert list(worker.requests) == ["again"]
    asker.close()
