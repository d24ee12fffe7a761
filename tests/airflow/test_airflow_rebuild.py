"""The rebuild task: step after step, joined by a new try, and failed for good where it must be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.task_context import TaskContext
from tideline.contract.modes import Mode
from tideline.contract.plan import Plan
from tideline.contract.rebuild import RebuildRecord
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.identity import identity_of
from tideline_airflow.rebuild import RebuildOperator

T = "public.t"


class Steps:
    """The planner and the jobs: each step's outcome, None: the job left no receipt."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome | None] = []
        self.delayed: dict[str, str] = {}
        self.ran: list[str] = []
        self.began: list[dict[str, Any]] = []

    def begin(self, settings: Any, table: str, **given: Any) -> RebuildRecord:
        self.began.append(given)
        return RebuildRecord(table, 2, "one", 0, Mode.HISTORY)

    def next(self, settings: Any, record: Any, **given: Any) -> Plan | None:
        if len(self.ran) == len(self.outcomes) and not self.delayed:
            return None
        return Plan(f"step-{len(self.ran)}", "shop", "one", "s3://x", 5, (), delayed=self.delayed)

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
    wanted = {"mode": Mode.HISTORY, "since_dump": False, "restart": True, "asked": asked}
    assert steps.began == [wanted]


def test_a_retry_asks_for_the_same(rebuild: RebuildOperator, steps: Steps) -> None:
    """Its first try may have been killed before there was anything to join."""
    for number in (1, 2):
        rebuild.execute(TaskContext(rebuild, try_number=number).values)
    assert steps.began[0] == steps.began[1]
    assert steps.began[0]["asked"]


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
