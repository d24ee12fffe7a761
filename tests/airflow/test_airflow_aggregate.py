"""Aggregates' tables as a task: one order per task, its receipt decides, a failed one fails by
name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.submit_script import calls, put_script, shall
from tests.airflow.task_context import TaskContext
from tideline.contract.aggregate_tables import AggregateOrder, AggregateTable
from tideline.contract.aggregates import Aggregate, Member
from tideline.planner import aggregating
from tideline_airflow.aggregate import AggregateOperator
from tideline_airflow.compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)

RECEIPT = """
from tideline.contract.aggregate_tables import (
    AggregateOutcome, AggregateReceipt, AggregateResult
)
results = tuple(
    AggregateResult(
        name, AggregateOutcome(outcome), manifest=7, inserted=2,
        error="lost a disk" if outcome == "failed" else None, error_kind=kind,
    )
    for name, (outcome, kind) in step.items()
)
receipt = AggregateReceipt("o", "shop", results)
"""
Step = dict[str, tuple[str, str | None]]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    put_script(folder, monkeypatch, RECEIPT)
    monkeypatch.setenv("TIDELINE_AGGREGATE_APPLICATION", "/jobs/aggregate.py")

    def order(_: Any, *, order_id: str, names: Sequence[str] | None) -> AggregateOrder:
        wanted = names or ("customer", "order")
        tables = tuple(
            AggregateTable(Aggregate(name, Member("public.t")), "file:///w", 7, 70, "", {})
            for name in wanted
            if name not in ("idle", "waiting")
        )
        delayed = {name: "it is dumped" for name in wanted if name == "waiting"}
        current = {name: 7 for name in wanted if name == "idle"}
        return AggregateOrder(order_id, "shop", "i", tables, delayed, current)

    # No chain here.
    monkeypatch.setattr(aggregating, "order_aggregates", order)
    return folder


def operator(config: Path, *names: str) -> AggregateOperator:
    return AggregateOperator(task_id="aggregate", names=list(names), config=str(config))


def test_a_run_and_one_that_joins_it(config: Path, submit: Path) -> None:
    shall(submit, {"customer": ("written", None), "order": ("current", None)})
    task = operator(config)
    context = TaskContext(task).values
    result = task.execute(context)
    assert {name: one["outcome"] for name, one in result.items()} == {
        "customer": "written",
        "order": "current",
    }
    assert (result["customer"]["manifest"], result["customer"]["inserted"]) == (7, 2)
    [call] = calls(submit)
    assert call[-5] == "/jobs/aggregate.py"
    assert (call[-4], call[-2]) == ("--order", "--receipt")
    assert call[-3].removesuffix(".json") == call[-1].removesuffix(".receipt.json")
    # The task again, its worker killed before it could say so: nothing is done twice.
    assert task.execute(context) == result
    assert len(calls(submit)) == 1


@pytest.mark.parametrize(
    ("kind", "error"), [("Unavailable", AirflowException), ("Misconfigured", AirflowFailException)]
)
def test_one_that_failed_fails_the_task_by_name(
    config: Path, submit: Path, kind: str, error: type[Exception]
) -> None:
    bad: Step = {"customer": ("failed", kind), "order": ("written", None)}
    shall(submit, bad, {**bad, "customer": ("written", None)})
    task = operator(config)
    context = TaskContext(task).values
    with pytest.raises(error, match=r"1 of 2 aggregates .*customer \(lost a disk\)") as raised:
        task.execute(context)
    assert type(raised.value) is error
    # What failed is done again under the same order.
    assert task.execute(context)["customer"]["outcome"] == "written"


def test_no_receipt_is_a_failure(config: Path, submit: Path) -> None:
    shall(submit, None)
    task = operator(config)
    with pytest.raises(AirflowException):
        task.execute(TaskContext(task).values)


@pytest.mark.parametrize(
    ("names", "why"),
    [(("idle",), "no document has changed"), (("idle", "waiting"), "waiting waits: it is dumped")],
)
def test_nothing_to_run_is_skipped_without_a_job(
    config: Path, submit: Path, names: tuple[str, ...], why: str
) -> None:
    task = operator(config, *names)
    with pytest.raises(AirflowSkipException, match=why):
        task.execute(TaskContext(task).values)
    assert calls(submit) == []
