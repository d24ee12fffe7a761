"""The rebuild task: step after step, joined by a new try, and failed for good where it must be."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG
from airflow.sdk.definitions.param import process_params
from msgspec.structs import replace

from tests.airflow.task_context import TaskContext
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.control.reservation import Reservation
from tideline_airflow import forms
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.identity import identity_of
from tideline_airflow.rebuild import RebuildOperator

T = "public.t"


class Steps:
    """The planner and the jobs: each step's outcome, None: the job left no receipt."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []
        self.delayed: dict[str, str] = {}
        self.swaps = False
        self.ran: list[str] = []
        self.began: list[dict[str, Any]] = []

    def begin(self, settings: Any, table: str, **given: Any) -> RebuildRecord:
        self.began.append(given)
        return RebuildRecord(table, 2, "one", 0, Mode.HISTORY)

    def next(self, settings: Any, record: Any, **given: Any) -> Plan | None:
        if len(self.ran) == len(self.outcomes) and not self.delayed:
            return None
        swaps = cast(Any, ("swap",) if self.swaps else ())
        made = Plan(f"step-{len(self.ran)}", "shop", "one", "s3://x", 5, (), delayed=self.delayed)
        return replace(made, swaps=swaps)

    def submit(self, operator: Any, hook: Any, plan_id: str, context: Any) -> Receipt | None:
        self.ran.append(plan_id)
        outcome = self.outcomes[len(self.ran) - 1]
        if outcome is None:
            return None
        return Receipt(plan_id, "shop", "one", (TableReceipt(T, outcome, 5, 9, error="2 keys"),))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    made = Steps()
    monkeypatch.setattr("tideline.planner.begin_rebuild", made.begin)
    monkeypatch.setattr("tideline.planner.next_step", made.next)
    monkeypatch.setattr(RebuildOperator, "submit_plan", lambda *given: made.submit(*given))
    yield made


@pytest.fixture
def rebuild(config: Path) -> RebuildOperator:
    return RebuildOperator(
        task_id="rebuild", table=T, mode="history", restart="True", config=str(config)
    )


def test_steps_are_run_until_there_is_none(rebuild: RebuildOperator, steps: Steps) -> None:
    steps.outcomes = [Outcome.APPLIED, Outcome.REFUSED, Outcome.APPLIED]
    found = rebuild.execute(TaskContext(rebuild).values)
    assert found == {
        "table": T, "build": 2, "mode": "history", "plans": ["step-0", "step-1", "step-2"]
    }  # fmt: skip
    asked = identity_of(TaskContext(rebuild).values).name
    wanted = {"mode": Mode.HISTORY, "since_dump": False, "restart": True, "asked": asked, "to": ""}
    assert steps.began == [wanted]


@pytest.mark.parametrize(
    ("given", "to"), [("iceberg", "iceberg"), (forms.AS_IT_IS, ""), ("", ""), (None, "")]
)
def test_a_table_is_moved_where_a_format_is_given(
    config: Path, steps: Steps, given: str | None, to: str
) -> None:
    task = RebuildOperator(task_id="rebuild", table=T, to=given, config=str(config))
    task.execute(TaskContext(task).values)
    assert [one["to"] for one in steps.began] == [to]


def test_a_swap_is_planned_again_once_a_merger_has_left_the_table_alone(
    rebuild: RebuildOperator, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    def begin(_: Reservation) -> bool:
        began.append(len(steps.ran))
        return len(began) == 1

    monkeypatch.setattr(Reservation, "begin", begin)
    steps.outcomes, steps.swaps = [Outcome.APPLIED], True
    assert rebuild.execute(TaskContext(rebuild).values)["plans"] == ["step-0"]
    assert began == [0, 0]


def test_a_retry_asks_for_the_same(rebuild: RebuildOperator, steps: Steps) -> None:
    """Its first try may have been killed before there was anything to join."""
    for number in (1, 2):
        rebuild.execute(TaskContext(rebuild, try_number=number).values)
    assert steps.began[0] == steps.began[1]
    assert steps.began[0]["asked"]


@pytest.mark.parametrize(
    ("given", "restarts"), [(True, True), ("true", True), (False, False), (None, False)]
)
def test_a_run_may_name_restart_as_before(
    config: Path,
    steps: Steps,
    capsys: pytest.CaptureFixture[str],
    given: bool | str | None,
    restarts: bool,
) -> None:
    """A trigger that was written for 0.1.0: Airflow passes what no form has."""
    with DAG("shop_rebuild", params=forms.REBUILD) as dag:
        task = RebuildOperator(task_id="rebuild", table=T, restart="False", config=str(config))
    conf = {"table": T, **({} if given is None else {"anew": given})}
    params = dict(process_params(dag, task, conf, suppress_exception=False))
    task.execute(TaskContext(task, params=params).values)
    assert [one["restart"] for one in steps.began] == [restarts]
    warned = "the param `anew` is called `restart` since 0.2.0" in capsys.readouterr().out
    assert warned == (given is not None)


def test_a_dag_may_name_restart_as_before(config: Path, steps: Steps) -> None:
    with pytest.warns(DeprecationWarning, match="the argument `anew` is called `restart`"):
        task = RebuildOperator(task_id="rebuild", table=T, anew=True, config=str(config))
    task.execute(TaskContext(task).values)
    assert [one["restart"] for one in steps.began] == [True]


@pytest.mark.parametrize(
    ("module", "before", "now"),
    [
        ("control", "SteerOperator", "ControlOperator"),
        ("verify", "MovingOperator", "ChangedKeysOperator"),
        ("verify", "ProofOperator", "ResultOperator"),
    ],
)
def test_operators_of_0_1_0_are_found_with_a_warning(module: str, before: str, now: str) -> None:
    found = import_module(f"tideline_airflow.{module}")
    with pytest.warns(DeprecationWarning, match=f"{before} is called {now} since 0.2.0") as warned:
        assert getattr(found, before) is getattr(found, now)
    assert [one.filename for one in warned] == [__file__]
    with pytest.raises(AttributeError, match="has no attribute 'NoOperator'"):
        _ = found.NoOperator


def test_what_ends_it(rebuild: RebuildOperator, steps: Steps) -> None:
    steps.outcomes = [Outcome.FAILED]
    with pytest.raises(AirflowFailException, match="2 keys"):
        rebuild.execute(TaskContext(rebuild).values)
    steps.ran, steps.outcomes = [], [None]
    with pytest.raises(AirflowException, match="left no receipt"):
        rebuild.execute(TaskContext(rebuild).values)
    steps.ran, steps.delayed = [], {T: "parts are removed"}
    with pytest.raises(AirflowFailException, match="parts are removed"):
        rebuild.execute(TaskContext(rebuild).values)
