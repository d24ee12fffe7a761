"""The DumpOperator against a real queue: one request, whatever is killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import pytest
from airflow.sdk import BaseOperator
from airflow.sdk.execution_time.timeout import timeout
from airflow.triggers.base import BaseTrigger

from devtools.services.valkey import ValkeyServer
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import FakeRun, TaskContext
from tests.airflow.task_log import TaskLog
from tideline import planner
from tideline.contract.options import Option, OptionKind, options_of
from tideline.contract.request import (
    Answer,
    DumpRequest,
    KeyRange,
    RequestState,
    TableProgress,
    TimeRange,
    encode_answer,
    parse_request,
)
from tideline.control import ControlClient
from tideline.control.client import RequestClient
from tideline.control.exchange import End, ExchangeResult, Waits
from tideline.settings import Settings
from tideline_airflow import forms, request_options
from tideline_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from tideline_airflow.dump import DEFER_AFTER_S, DumpOperator
from tideline_airflow.identity import identity_of
from tideline_airflow.request_options import takes
from tideline_airflow.triggers import DumpTrigger


@pytest.fixture
def ask(config: Path) -> DumpOperator:
    return DumpOperator(
        task_id="ask", tables=["public.orders"], config=str(config), retries=2, delay_ms=5
    )


def test_it_asks_and_defers_with_the_same_request(
    ask: DumpOperator, worker: StubWorker, config: Path
) -> None:
    worker.delayed.set()
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
    worker.delayed.set()
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


def test_clearing_the_task_asks_again(ask: DumpOperator, worker: StubWorker) -> None:
    deferred(ask)
    until_answered(ask, worker)
    first = set(worker.requests)
    deferred(ask, clears=1, try_number=2)
    until(lambda: len(worker.requests) == 2)
    assert len(first) == 1 and first < set(worker.requests), "the first request is not asked again"


def test_an_end_that_the_chain_does_not_have_is_not_believed(
    ask: DumpOperator, worker: StubWorker
) -> None:
    """Whoever may ask may write answers. It is asked for as without an answer, and joined once the
    worker has said what is so."""
    worker.delayed.set()
    forged = Answer(identity_of(TaskContext(ask).values).name, RequestState.DONE, manifest_number=3)
    worker.forge(forged)
    trigger = deferred(ask)
    assert isinstance(trigger, DumpTrigger)
    until(lambda: len(worker.seen) == 1)
    event = {"status": "final", "answer": encode_answer(forged).decode()}
    with pytest.raises(AirflowException, match="the chain has no such end") as caught:
        ask.collect({}, event)
    assert not isinstance(caught.value, AirflowFailException), "the next try may find the true one"
    worker.delayed.clear()

    def joined() -> bool:
        """It waits for as long as the worker has not said anything else."""
        try:
            result = ask.execute(TaskContext(ask, try_number=2).values)
        except TaskDeferred:
            return False
        return str(result["manifest_number"]) == "7"

    until(joined)


@pytest.mark.parametrize("state", [RequestState.FAILED, RequestState.REFUSED])
def test_the_workers_words_reach_the_user(
    ask: DumpOperator, worker: StubWorker, state: RequestState
) -> None:
    table = TableProgress("public.orders", state, error="it has no key")
    answer = Answer(
        *("r", state), manifest_number=5, tables=(table,), error="nothing to dump", hint="add a key"
    )
    worker.say(answer)
    event = {"status": "final", "answer": encode_answer(answer).decode()}
    words = f"the worker says {state.value}: nothing to dump; public.orders: it has no key; add"
    with pytest.raises(AirflowFailException, match=words):
        ask.collect({}, event)


def test_a_cancelled_dump_fails_for_good_and_says_so_once(
    ask: DumpOperator, worker: StubWorker
) -> None:
    """As the worker's core words it; AirflowFailException is not retried."""
    why = "it was cancelled by ann@host"
    table = TableProgress("public.orders", RequestState.FAILED, rows=7, error=why)
    answer = Answer(
        *("r", RequestState.FAILED),
        manifest_number=5,
        tables=(table,),
        error=f"public.orders: {why}",
    )
    worker.say(answer)
    event = {"status": "final", "answer": encode_answer(answer).decode()}
    with pytest.raises(AirflowFailException) as caught:
        ask.collect({}, event)
    assert str(caught.value) == (
        f"the worker says failed: public.orders: {why}; clear the task to ask again"
    )


@pytest.mark.parametrize(("wanted", "commands"), [(False, 0), (True, 1), ("True", 1), ("false", 0)])
def test_a_kill_before_the_wait(
    config: Path, worker: StubWorker, wanted: bool | str, commands: int
) -> None:
    ask = DumpOperator(
        task_id="ask", tables=["public.orders"], config=str(config), cancel_with_task=wanted
    )
    ask.on_kill()  # Nothing was asked for yet.
    trigger = deferred(ask)
    assert trigger.cancel_with_task is bool(commands)
    ask.on_kill()
    until(lambda: len(worker.commands) == commands)


def test_a_time_out_may_be_tried_again(ask: DumpOperator) -> None:
    with pytest.raises(AirflowException, match="nobody is there") as caught:
        ask.collect({}, {"status": "timeout", "reason": "nobody is there"})
    assert not isinstance(caught.value, AirflowFailException)


def test_without_tables_only_a_scheduled_run_is_skipped(config: Path) -> None:
    ask = DumpOperator(task_id="ask", tables=[" ", ""], config=str(config))
    with pytest.raises(AirflowSkipException):
        ask.execute(TaskContext(ask, run=FakeRun("scheduled")).values)
    for run_type, dialog in (("manual", False), ("backfill", True)):
        with pytest.raises(AirflowFailException, match="name at least one table") as caught:
            ask.execute(TaskContext(ask, run=FakeRun(run_type)).values)
        assert ("Override parameters on existing runs" in str(caught.value)) == dialog


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


@pytest.mark.parametrize(
    ("columns", "lines", "keys"),
    [
        (("id",), ["17", " 18 ", ""], (("17",), ("18",))),
        (("name",), ["Smith, John", '"Smith, John"', '["Smith, John"]'], (("Smith, John",),) * 3),
        (("name",), ['5" pipe', "[x", '["[x"]'], None),
        (("a", "b"), ["17,2", '17, "Smith, John"', '["17", 2]'],
         (("17", "2"), ("17", "Smith, John"), ("17", "2"))),
        (("a", "b"), ['17,"say ""hi"""', "17,"], (("17", 'say "hi"'), ("17", ""))),
        (("a", "b"), ["17,2", "18"], None),
        (("a", "b"), ["17,2,3"], None),
        (None, ["17", "18"], (("17",), ("18",))),
        (None, ["17,2"], (("17", "2"),)),
    ],
    ids=str,
)  # fmt: skip
def test_the_lines_of_a_form_are_keys_of_the_tables_columns(
    config: Path,
    worker: StubWorker,
    monkeypatch: pytest.MonkeyPatch,
    columns: tuple[str, ...] | None,
    lines: list[str],
    keys: tuple[tuple[str, ...], ...] | None,
) -> None:
    monkeypatch.setattr(planner, "key_columns", lambda _, table: columns)
    ask = DumpOperator(task_id="ask", tables=["public.orders"], keys=lines, config=str(config))
    if keys is None:
        with pytest.raises(AirflowFailException, match=r"keys, line [12]: .*trigger again"):
            ask.execute(TaskContext(ask).values)
        return
    deferred(ask)
    until(lambda: len(worker.requests) == 1)
    assert next(iter(worker.requests.values())).keys == keys


def sent(ask: DumpOperator, worker: StubWorker, **params: Any) -> DumpRequest:
    deferred(ask, params=params)
    until(lambda: len(worker.requests) == 1)
    return next(iter(worker.requests.values()))


def test_a_time_range_goes_out_as_it_was_written(config: Path, worker: StubWorker) -> None:
    bounds = {"column": "placed_at", "from": "2026-11-20T00:00:00+00:00", "to": "2026-11-21"}
    ask = DumpOperator(task_id="ask", tables=["public.orders"], time=bounds, config=str(config))
    assert sent(ask, worker).time == TimeRange(*bounds.values())


def test_all_that_the_repair_form_can_say(config: Path, worker: StubWorker) -> None:
    rendered = {"priority": "5", "chunk_rows": 50, "delay_ms": "", "cancel_with_task": False}
    options = {**forms.values("dump"), **rendered}
    ask = DumpOperator(task_id="ask", tables=["public.orders"], config=str(config), **options)
    empty = dict.fromkeys(("key_from", "key_to", "time_column", "time_from", "time_to"))
    typed = {"keys": [["7", 2], "8, 3"], "key_from": ["1e5", 2], "key_to": "2e5"}
    request = sent(ask, worker, **empty | typed)
    assert request.key_range == KeyRange(("1e5", "2"), ("2e5",))
    assert request.keys == (("7", "2"), ("8", "3"))
    assert request.time is None
    assert (request.priority, request.chunk_rows, request.delay_ms) == (5, 50, None)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"time": {"column": None, "from": "a", "to": "b"}}, "name the time column"),
        ({"time": {"column": "c", "from": None, "to": "b"}}, "from must be given too"),
        ({"time": {"column": "c"}}, "from and to must be given too"),
        ({"keys": ["1"], "tables": ["a.b", "a.c"]}, "keys needs exactly one table"),
        ({"key_range": {"to": "1"}, "tables": ["a.b", "a.c"]}, "key_range needs exactly one"),
        ({"key_range": {"from": {}}}, "each key is a text or number"),
        ({"key_range": {"since": "1"}}, "or one of them"),
        ({"key_range": {"from": "1"}, "time": {"column": "c", "from": "1", "to": "2"}}, "exclude"),
        ({"keys": {"id": 17}}, "keys must be a list"),
        ({"keys": ["17", '["canary", 2']}, "keys, line 2: not JSON"),
        ({"keys": ["17", "", 'a,"canary']}, "keys, line 3: a quote that does not end"),
        ({"keys": ["1", '["canary"]\n["2"]']}, "keys, line 2: "),
        ({"key_range": {"from": '["canary"'}}, "key_from, line 1: not JSON"),
        ({"keys": [{"id": "canary-77"}]}, "each key is a text or number"),
        ({"keys": [["1"], ["canary-77", "2"]]}, "keys differ in length"),
        ({"tables": "public.orders"}, "tables must be a list"),
        ({"priority": 11}, "priority must be -10 to 10"),
        ({"priority": "high"}, "priority must be a whole number"),
        ({"chunk_rows": 0}, "chunk_rows must be 1"),
        ({"delay_ms": -1}, "delay_ms must be 0"),
    ],
    ids=lambda given: str(given)[:50],
)
def test_what_no_worker_takes_fails_at_once_and_says_how_to_mend_it(
    config: Path, valkey: ValkeyServer, wrong: dict[str, Any], words: str
) -> None:
    values: dict[str, Any] = {"tables": ["public.orders"], "config": str(config), **wrong}
    ask = DumpOperator(task_id="ask", **values)
    with pytest.raises(AirflowFailException, match=words) as caught:
        ask.execute(TaskContext(ask).values)
    assert "canary" not in str(caught.value)


def test_no_secret_is_in_what_airflow_keeps(
    ask: DumpOperator, settings: Settings, worker: StubWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELINE_SOURCE__PASSWORD", "hush-source")
    trigger = deferred(ask)
    kept = repr([getattr(ask, name) for name in ask.template_fields]) + repr(trigger.serialize())
    for secret in (settings.control.url.get_secret_value(), "hush-source"):
        assert secret not in kept


def test_an_end_is_told_once(
    config: Path, worker: StubWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait tells each answer as it comes, the end among them, and the task tells its end."""
    ask = DumpOperator(task_id="ask", tables=["public.orders"], config=str(config))
    told: list[str] = []
    monkeypatch.setattr(
        type(ask), "log", Mock(info=lambda form, *given: told.append(form % given)), raising=False
    )
    deferred(ask)
    until_answered(ask, worker)
    ask.execute(TaskContext(ask, try_number=2).values)
    assert len([line for line in told if ": done" in line]) == 1, told


def test_no_key_is_in_what_airflow_shows(
    config: Path, worker: StubWorker, task_log: TaskLog
) -> None:
    """Rendered templates, logs and XComs. Triggers' arguments are encrypted, and never shown."""
    ask = DumpOperator(
        task_id="ask",
        tables=["public.orders"],
        keys=[["canary-77"]],
        key_range={"from": "canary-77"},
        config=str(config),
    )
    trigger = deferred(ask)
    until_answered(ask, worker)
    result = ask.execute(TaskContext(ask, try_number=2).values)
    shown = [getattr(ask, name) for name in ask.template_fields]
    logged = task_log.text
    asked = f"dump public.orders: request {identity_of(TaskContext(ask).values).name}"
    assert f"the worker is asked to {asked}" in logged
    assert "canary" not in repr((shown, trigger, result)) + logged


class WiderRequest(DumpRequest, frozen=True):
    """A request with options of other kinds than there are."""

    rest_ms: Annotated[int | None, Option("Rest", "Rests.", least=0, most=50, empty="none")] = None
    share: Annotated[float, Option("Share", "Of it.", least=0.5, most=1.5)] = 1.0
    gently: Annotated[bool, Option("Gently", "Whether it is.")] = False
    note: Annotated[str | None, Option("Note", "Any text.", empty="none")] = None
    side: Annotated[Literal["left", "right"], Option("Side", "Where.")] = "left"
    first_key: Annotated[tuple[str, ...] | None, Option("First", "From.", empty="all")] = None


def test_every_kind_of_option_has_a_field_and_a_parser() -> None:
    for table in (forms.FIELDS, request_options.VALUES):
        assert set(table) == set(OptionKind)


def test_values_of_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "DumpRequest", WiderRequest)
    names = ("rest_ms", "share", "gently", "note", "side", "first_key")
    schemas = {name: forms.fields("dump")[name].schema for name in names}
    assert {name: schema["type"] for name, schema in schemas.items()} == {
        "rest_ms": ["null", "integer"],
        "share": "number",
        "gently": "boolean",
        "note": ["null", "string"],
        "side": "string",
        "first_key": ["null", "string", "array"],
    }
    assert schemas["side"]["enum"] == ["left", "right"]
    asked = forms.values("dump")
    assert {name for name in names if isinstance(asked[name], str)} == {
        "rest_ms",
        "share",
        "gently",
    }
    options = {option.name: option for option in options_of(WiderRequest)}
    texts = ("7", "0.5", "True", "1e5", "right", "1,2")
    given = zip(names, texts, strict=True)
    found = [request_options.value_of(options[name], text, 2) for name, text in given]
    assert found == [7, 0.5, True, "1e5", "right", ("1", "2")]
    empty = [request_options.value_of(options[name], "", None) for name in names]
    assert empty == [None, 1.0, False, None, "left", None]
    for name, wrong in (("share", "much"), ("side", "up")):
        with pytest.raises(AirflowFailException, match=f"{name} must be"):
            request_options.value_of(options[name], wrong, None)


def test_a_number_that_a_request_declares_is_a_field_and_an_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forms, "DumpRequest", WiderRequest)
    field = forms.fields("dump")["rest_ms"]
    assert (field.schema["title"], field.schema["maximum"]) == ("Rest", 50)
    assert field.description == "Rests. Empty: none."
    assert forms.values("dump")["rest_ms"] == "{{ params.rest_ms }}"

    class WiderOperator(BaseOperator):
        @takes(options_of(WiderRequest))
        def __init__(self, *, tables: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)

    operator: Any = WiderOperator(task_id="ask", tables=[], rest_ms="7")
    assert operator.rest_ms == "7"
    with pytest.raises(TypeError, match="rests_ms"):
        WiderOperator.partial(task_id="ask", rests_ms=7).expand(tables=[1])


def deferred(ask: DumpOperator, **context: Any) -> DumpTrigger:
    ask.defer_after_s = 0.0
    with pytest.raises(TaskDeferred) as caught:
        ask.execute(TaskContext(ask, **context).values)
    assert caught.value.method_name == "collect"
    assert isinstance(caught.value.trigger, DumpTrigger)
    return caught.value.trigger


def test_what_ends_soon_is_not_waited_for_elsewhere(config: Path, worker: StubWorker) -> None:
    ask = DumpOperator(
        task_id="ask", tables=["public.orders"], config=str(config), defer_after_s=600.0
    )
    done = ask.execute(TaskContext(ask).values)
    assert done["tables"] == {"public.orders": 3}


def test_without_deferral_the_task_itself_waits_to_the_end(
    config: Path, worker: StubWorker
) -> None:
    """As before Airflow 3.3, whose triggers do not hear that a user ends the task."""
    worker.delayed.set()
    ask = DumpOperator(
        task_id="ask", tables=["public.orders"], config=str(config), defer_after_s=None
    )
    release = Timer(1.5, worker.delayed.clear)
    release.start()
    done = ask.execute(TaskContext(ask).values)
    release.join()
    assert done["tables"] == {"public.orders": 3}


def test_without_deferral_a_wait_that_is_too_long_says_what_was_last_seen(
    config: Path, worker: StubWorker
) -> None:
    worker.delayed.set()
    ask = DumpOperator(
        task_id="ask",
        tables=["public.orders"],
        config=str(config),
        defer_after_s=None,
        execution_timeout=timedelta(seconds=0.3),
    )
    with pytest.raises(AirflowException, match=r"has not ended: not done within 0\.27 s") as caught:
        ask.execute(TaskContext(ask).values)
    assert not isinstance(caught.value, AirflowFailException), "the next try joins the request"


@pytest.mark.parametrize(("given_s", "waited_s"), [(3600, 3570.0), (10, 9.0)])
def test_in_the_slot_our_time_out_comes_before_airflows(
    config: Path, monkeypatch: pytest.MonkeyPatch, given_s: int, waited_s: float
) -> None:
    """Airflow's has no reason, and begins to count before the task does."""
    found = []

    def follow(self: object, waits: Waits, *_: object, **__: object) -> ExchangeResult:
        found.append(waits.timeout_s)
        return ExchangeResult(End.TIMED_OUT)

    monkeypatch.setattr(RequestClient, "follow", follow)
    ask = DumpOperator(
        task_id="ask",
        tables=["public.orders"],
        config=str(config),
        defer_after_s=None,
        execution_timeout=timedelta(seconds=given_s),
    )
    with pytest.raises(AirflowException, match="not done within"):
        ask.execute(TaskContext(ask).values)
    assert found == [waited_s]


@pytest.mark.parametrize("defer_after_s", [None, 600.0])
def test_a_time_out_of_airflows_cancels_nothing(
    config: Path, worker: StubWorker, defer_after_s: float | None
) -> None:
    """Else the next try would join a cancelled request, and fail for good."""
    worker.delayed.set()
    ask = DumpOperator(
        task_id="ask",
        tables=["public.orders"],
        config=str(config),
        cancel_with_task=True,
        defer_after_s=defer_after_s,
    )
    # As Airflow's runner does it, whose own time-out comes first where ours cannot end the wait.
    airflows = timeout(1.5)  # type: ignore[no-untyped-call]
    with pytest.raises(AirflowTaskTimeout), airflows:
        ask.execute(TaskContext(ask).values)
    until(lambda: len(worker.seen) == 1)
    ask.on_kill()
    time.sleep(0.3)  # a command would be read by now
    assert worker.commands == []


def test_tasks_wait_elsewhere_where_a_trigger_hears_its_user() -> None:
    assert (DEFER_AFTER_S is not None) == hasattr(BaseTrigger, "on_kill")
    assert DumpOperator(task_id="ask", tables=[]).defer_after_s == DEFER_AFTER_S


def test_a_queue_that_is_away_is_waited_for_elsewhere(
    ask: DumpOperator, valkey: ValkeyServer
) -> None:
    valkey.stop()
    try:
        trigger = deferred(ask)
    finally:
        valkey.start()
    assert parse_request(trigger.request.encode()).tables == ("public.orders",)


def until_answered(ask: DumpOperator, worker: StubWorker) -> None:
    request = identity_of(TaskContext(ask).values).name
    settings = worker.settings
    control_client = ControlClient(settings.control, settings.pipeline)
    until(lambda: control_client.answer(request) is not None)
    control_client.close()


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)


def test_the_stub_repeats_itself(worker: StubWorker) -> None:
    """The stand-in does what a worker owes: the same id twice is one request."""
    control_client = ControlClient(worker.settings.control, worker.settings.pipeline)
    for _ in range(2):
        control_client.ask(DumpRequest("again", ("public.orders",)))
    until(lambda: worker.seen == ["again", "again"])
    assert list(worker.requests) == ["again"]
    control_client.close()
