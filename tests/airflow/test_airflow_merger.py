"""Merges of tasks by the pipeline's merger, and without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.airflow.task_context import TaskContext
from tests.airflow.test_airflow_merge import NAME, Submit
from tests.airflow.test_airflow_merge import merge as merge
from tests.airflow.test_airflow_merge import submit as submit
from tideline.contract.errors import Unavailable
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.control.merger import MergerQueue, MergerStatus
from tideline.planner.runs import store_receipt
from tideline.settings import Settings
from tideline_airflow import merger
from tideline_airflow.merge import MergeOperator
from tideline_airflow.merger import TAKEN_WITHIN_S, MergerRun

STATUS = MergerStatus("m", "shop", "merging", "here", 7, 1, 2)
APPLIED = TableReceipt("public.orders", Outcome.APPLIED, 4, 40)
RECEIPT = Receipt("p", "shop", "i", (APPLIED,), seconds=1.0)
FAILED = Receipt("p", "shop", "i", (replace(APPLIED, outcome=Outcome.FAILED),))


@dataclass
class Played:
    """A merger that does ``act`` at each look, a client of it and a clock."""

    act: Callable[[Played], None] = lambda played: None
    status: MergerStatus | None = STATUS
    away: bool = False
    receipt: Receipt | None = None
    now_s: float = 0.0
    asked: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def run(self) -> Receipt | None:
        client = cast(Any, _Client(self))
        return MergerRun(
            client, "p", self._read, self.lines.append, clock=lambda: self.now_s, sleep=self._sleep
        ).receipt()

    def _read(self) -> Receipt | None:
        return self.receipt

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        assert self.now_s < 10_000, "it waits for ever"
        self.act(self)


class _Client:
    def __init__(self, played: Played) -> None:
        self._played = played

    def status(self) -> MergerStatus | None:
        if self._played.away:
            raise Unavailable("redis did not answer in time")
        return self._played.status

    def ask(self, plan_id: str) -> None:
        if plan_id not in self._played.asked:
            self._played.asked.append(plan_id)

    def withdraw(self, plan_id: str) -> None:
        if self._played.away:
            raise Unavailable("redis did not answer in time")
        self._played.asked.remove(plan_id)


def taken(played: Played) -> None:
    played.status = replace(STATUS, plans=("p",))


def test_without_a_merger_nothing_is_asked() -> None:
    played = Played(status=None)
    assert (played.run(), played.asked) == (None, [])


def test_the_receipt_is_the_answer() -> None:
    def act(played: Played) -> None:
        taken(played)
        if played.now_s > 100 * TAKEN_WITHIN_S:
            played.receipt = RECEIPT

    played = Played(act)
    assert played.run() == RECEIPT, "a plan that is run is waited for, however long"
    assert "the merger on here (process 7) merges" in played.lines[0]


def test_an_earlier_receipt_is_no_answer() -> None:
    """That of a try whose tables failed: the merger runs the plan once more."""

    def act(played: Played) -> None:
        taken(played)
        if played.now_s > 5:
            played.receipt = RECEIPT

    assert Played(act, receipt=FAILED).run() == RECEIPT


def test_warnings_that_an_earlier_run_adds_are_no_answer() -> None:
    """It may still be at the catalog when the next try asks."""

    def act(played: Played) -> None:
        taken(played)
        played.receipt = replace(FAILED, warnings=("the catalog does not answer",))
        if played.now_s > 5:
            played.receipt = RECEIPT

    assert Played(act, receipt=FAILED).run() == RECEIPT


def test_a_request_that_is_lost_is_repeated() -> None:
    def act(played: Played) -> None:
        if 5 < played.now_s < 6:
            assert played.asked == ["p"]
            played.asked.clear()
        if played.now_s > 10 and played.asked:
            played.receipt = RECEIPT

    assert Played(act).run() == RECEIPT


def test_a_merger_that_goes_is_not_waited_for() -> None:
    def act(played: Played) -> None:
        taken(played)
        if played.now_s > 5:
            played.status = None

    played = Played(act)
    assert (played.run(), played.asked) == (None, [])
    assert played.lines[-1] == "the merger is gone: this task starts Spark itself"


def test_what_it_left_before_it_went_is_the_answer() -> None:
    def act(played: Played) -> None:
        played.status, played.receipt = None, RECEIPT

    assert Played(act).run() == RECEIPT


def test_a_merger_that_does_not_take_the_plan_is_not_waited_for() -> None:
    played = Played()
    assert (played.run(), played.asked) == (None, [])
    assert "has not taken the plan" in played.lines[-1]
    assert TAKEN_WITHIN_S < played.now_s < 2 * TAKEN_WITHIN_S


def test_a_queue_that_stays_away_is_not_waited_for() -> None:
    def act(played: Played) -> None:
        played.away = True

    played = Played(act)
    assert played.run() is None
    assert "the queue has been away" in played.lines[1]
    assert "the request stays in the queue" in played.lines[-1]


@contextmanager
def merging(settings: Settings) -> Iterator[MergerQueue]:
    with closing(MergerQueue(settings.control, settings.pipeline, "m", lease_s=600)) as queue:
        queue.renew()
        queue.publish(replace(STATUS, plans=(NAME,)))
        yield queue
        queue.release()


def test_a_task_starts_no_spark_where_a_merger_is(
    merge: MergeOperator,
    submit: Submit,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with merging(settings) as queue:

        def run(seconds: float) -> None:
            assert queue.asked() == [NAME]
            store_receipt(settings, replace(RECEIPT, plan_id=NAME, pipeline=settings.pipeline))

        monkeypatch.setattr(merger, "MergerRun", partial(MergerRun, sleep=run))
        done = merge.execute(TaskContext(merge).values)
    assert done["tables"]["public.orders"]["outcome"] == "applied"
    assert submit.calls == []
    assert "this task starts no Spark" in capfd.readouterr().out


def test_a_task_starts_spark_where_the_merger_dies(
    merge: MergeOperator,
    submit: Submit,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    submit.shall({"public.orders": "applied"})
    with merging(settings) as queue:
        goes = partial(MergerRun, sleep=lambda _: queue.release())
        monkeypatch.setattr(merger, "MergerRun", goes)
        done = merge.execute(TaskContext(merge).values)
        assert queue.asked() == []
    assert done["tables"]["public.orders"]["outcome"] == "applied"
    assert len(submit.calls) == 1
    assert "the merger is gone: this task starts Spark itself" in capfd.readouterr().out
