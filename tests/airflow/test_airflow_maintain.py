"""Maintenance as a task: one order per task, its receipt decides, a failed table fails by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.submit_script import calls, put_script, shall
from tests.airflow.task_context import TaskContext
from tideline.contract.maintenance import MaintainedTable, MaintenanceOrder, Thresholds
from tideline.planner import maintaining
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.maintain import MaintainOperator

RECEIPT = """
from tideline.contract.maintenance import MaintenanceReceipt, TableMaintenance, MaintenanceOutcome
tables = tuple(
    TableMaintenance(
        name, MaintenanceOutcome(outcome), "why", error="lost a disk", error_kind=kind
    )
    for name, (outcome, kind) in step.items()
)
receipt = MaintenanceReceipt("m", "shop", tables)
"""
LIMITS = Thresholds(1, 1, 1.0, 1, 24.0, 1)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    put_script(folder, monkeypatch, RECEIPT)
    monkeypatch.setenv("TIDELINE_MAINTAIN_APPLICATION", "/jobs/maintain.py")

    def order(_: Any, *, maintenance_id: str, tables: Sequence[str] | None) -> MaintenanceOrder:
        chosen = tables or ("public.orders", "public.items")
        targets = tuple(MaintainedTable(table, "file:///w") for table in chosen)
        return MaintenanceOrder(maintenance_id, "shop", "i", LIMITS, targets, named=bool(tables))

    # No chain here.
    monkeypatch.setattr(maintaining, "order_maintenance", order)
    return folder


@pytest.fixture
def operator(config: Path) -> MaintainOperator:
    return MaintainOperator(task_id="maintain", tables=[], config=str(config))


def test_a_run_and_one_that_joins_it(operator: MaintainOperator, submit: Path) -> None:
    shall(submit, {"public.orders": ("rewritten", None), "public.items": ("left", None)})
    context = TaskContext(operator).values
    result = operator.execute(context)
    assert {name: one["outcome"] for name, one in result.items()} == {
        "public.orders": "rewritten",
        "public.items": "left",
    }
    [call] = calls(submit)
    assert call[-5] == "/jobs/maintain.py"
    assert (call[-4], call[-2]) == ("--order", "--receipt")
    assert call[-3].removesuffix(".json") == call[-1].removesuffix(".receipt.json")
    # The task again, its worker killed before it could say so: nothing is done twice.
    assert operator.execute(context) == result
    assert len(calls(submit)) == 1


@pytest.mark.parametrize(
    ("kind", "error"), [("Unavailable", AirflowException), ("Misconfigured", AirflowFailException)]
)
def test_a_table_that_failed_fails_the_task_by_name(
    operator: MaintainOperator, submit: Path, kind: str, error: type[Exception]
) -> None:
    bad: dict[str, tuple[str, str | None]] = {
        "public.orders": ("failed", kind),
        "public.items": ("left", None),
    }
    shall(submit, bad, {**bad, "public.orders": ("rewritten", None)})
    context = TaskContext(operator).values
    with pytest.raises(error, match=r"1 of 2 tables .*public\.orders \(lost a disk\)") as raised:
        operator.execute(context)
    assert type(raised.value) is error
    # What failed is done again under the same order.
    assert operator.execute(context)["public.orders"]["outcome"] == "rewritten"


def test_no_receipt_is_a_failure(operator: MaintainOperator, submit: Path) -> None:
    shall(submit, None)
    with pytest.raises(AirflowException):
        operator.execute(TaskContext(operator).values)
