"""Airflow needs no password of the source and never connects to it, whichever operator runs."""

from __future__ import annotations

import asyncio
import json
import os
import pkgutil
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from airflow.sdk import BaseOperator
from msgspec.structs import replace

import tideline_airflow
from tests.airflow.chain_source import TABLE, ChainSource, Order
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import ENDED_AT, StubWorker
from tests.airflow.task_context import TaskContext
from tideline.contract.errors import Misconfigured
from tideline.contract.verification import VerifyPlan
from tideline.control.exchange import COMMAND_WAITS
from tideline.planner import verification
from tideline.planner.verifying import Planned
from tideline.settings import Settings
from tideline_airflow import control
from tideline_airflow.aggregate import AggregateOperator
from tideline_airflow.compat import AirflowFailException, TaskDeferred
from tideline_airflow.control import ControlOperator
from tideline_airflow.dump import DumpOperator
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.maintain import MaintainOperator
from tideline_airflow.merge import MergeOperator, PlanJobOperator
from tideline_airflow.rebuild import RebuildOperator
from tideline_airflow.spark_job import SparkJobOperator
from tideline_airflow.verify import (
    ChangedKeysOperator,
    CompareOperator,
    ReadOperator,
    ResultOperator,
)

SUBMIT = """#!{python}
import pathlib, sys, msgspec
from tideline.contract.maintenance import MaintenanceReceipt
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, encode_receipt
from tideline.contract.verification import (
    VerificationOutcome, TableResult, Verification, encode_verification
)
words = sys.argv[1:]
def put(option, data):
    path = pathlib.Path(words[words.index(option) + 1].removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
if "--result" in words:
    result = TableResult(
        "{table}", VerificationOutcome.EQUAL, seq=40, rows=9, target_version=3, app_id="app"
    )
    put("--result", encode_verification(Verification("v", "shop", "i", "r", (result,))))
elif "--order" in words:
    put("--receipt", msgspec.json.encode(MaintenanceReceipt("m", "shop", ())))
else:
    table = TableReceipt("{table}", Outcome.APPLIED, 4, 40)
    put("--receipt", encode_receipt(Receipt("p", "shop", "one", (table,))))
"""


@pytest.fixture(autouse=True)
def _submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spark-submit that leaves what a job that went well leaves. What Spark's jobs import is
    import-linter's to check: no settings, and no driver of a database."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "spark-submit"
    program.write_text(SUBMIT.format(python=sys.executable, table=TABLE))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    local = json.dumps({"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", local)
    monkeypatch.setattr(control, "COMMAND_WAITS", replace(COMMAND_WAITS, poll_interval_s=0.02))

    def planned(settings: Settings, request_id: str, *, verify_id: str, **_: Any) -> Planned:
        return Planned(VerifyPlan(verify_id, "shop", "i", "file:///s", request_id, ()), ())

    # `ChainSource` reads nothing to be compared.
    monkeypatch.setattr(verification, "plan_verification", planned)


@pytest.fixture
def line(settings: Settings, worker: StubWorker) -> ChainSource:
    """A chain with a table's rows, which a dump reads."""
    chain = ChainSource(settings)
    chain.change(*(Order(key, "first", datetime(2026, 11, 1, tzinfo=UTC)) for key in range(9)))
    worker.replace_dump(chain.dump)
    return chain


class Runs:
    """Runs operators as Airflow does, a deferred one to its end, and keeps which they were."""

    def __init__(self, config: Path) -> None:
        self.config = str(config)
        self.ran: set[type[BaseOperator]] = set()

    def __call__(self, kind: Callable[..., Any], task_id: str, **given: Any) -> Any:
        if kind is not ChangedKeysOperator:
            given["config"] = self.config
        operator = kind(task_id=task_id, **given)
        self.ran.add(type(operator))
        try:
            return operator.execute(TaskContext(operator).values)
        except TaskDeferred as deferred:
            [event] = asyncio.run(fired(deferred.trigger))
            return operator.collect({}, event.payload)


async def fired(trigger: Any) -> list[Any]:
    return [event async for event in trigger.run()]


def operators() -> set[type[BaseOperator]]:
    """Every operator of ours, but the bases of those that start a Spark job."""
    found = set()
    for module in pkgutil.iter_modules(tideline_airflow.__path__):
        for one in vars(import_module(f"tideline_airflow.{module.name}")).values():
            ours = isinstance(one, type) and one.__module__.startswith("tideline_airflow.")
            if ours and issubclass(one, BaseOperator):
                found.add(one)
    return found - {SparkJobOperator, PlanJobOperator}


@pytest.mark.usefixtures("line")
def test_every_operator_runs_without_the_password(
    config: Path, settings: Settings, source: NoSource
) -> None:
    """The file that the settings name is not there, and the environment has none."""
    assert "TIDELINE_SOURCE__PASSWORD" not in os.environ
    assert settings.source.password is None
    with pytest.raises(Misconfigured, match="password_file cannot be read"):
        settings.source.dsn()
    run = Runs(config)
    assert run(DumpOperator, "ask", tables=[TABLE])["tables"] == {TABLE: 9}
    merged = run(MergeOperator, "merge")
    assert merged["tables"][TABLE]["outcome"] == "applied"
    assert (
        run(ControlOperator, "control", action="pause", every=True)["manifest_number"] == ENDED_AT
    )
    assert run(MaintainOperator, "maintain", tables=[TABLE]) == {}
    read = run(ReadOperator, "read", tables=[TABLE])
    compared = run(CompareOperator, "compare", reads=read)
    assert compared["tables"][TABLE]["proof"] == "equal"
    assert run(ChangedKeysOperator, "moving", compared=compared) == []
    assert run(ResultOperator, "report", compared=compared)[TABLE]["proof"] == "equal"
    with pytest.raises((AirflowFailException, Misconfigured), match=TABLE):
        run(RebuildOperator, "rebuild", table=TABLE)  # There is no target yet.
    with pytest.raises((AirflowFailException, Misconfigured), match="have no aggregates"):
        run(AggregateOperator, "aggregate")
    assert run.ran == operators()
    assert source.visitors() == 0


def test_a_visitor_would_be_noticed(source: NoSource) -> None:
    """What the tests of this folder all end with can fail."""
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(source.url, connect_timeout=2)
    assert source.visitors() == 1


def test_a_password_that_airflow_has_all_the_same_is_masked(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked: list[str] = []
    monkeypatch.setattr("tideline_airflow.hooks.mask_secret", masked.append)
    monkeypatch.setenv("TIDELINE_SOURCE__PASSWORD", "canary-given")
    assert TidelineHook(str(config)).settings
    assert "canary-given" in masked
    assert any("canary-given@" in one for one in masked)
    file = config.with_name("password")
    file.write_text("canary-file\n")
    monkeypatch.delenv("TIDELINE_SOURCE__PASSWORD")
    monkeypatch.setenv("TIDELINE_SOURCE__PASSWORD_FILE", str(file))
    assert TidelineHook(str(config)).settings
    assert "canary-file" in masked
