"""Read, compare, read again, report: with a spark-submit that writes the results it is told to."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tideline.contract.request import parse_request
from tideline.contract.verification import (
    DifferentKey,
    Scope,
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
    encode_verification,
)
from tideline.planner import verification
from tideline.planner.verified import read_verification
from tideline.planner.verifying import Planned
from tideline.settings import Settings
from tideline_airflow import verify
from tideline_airflow.compat import AirflowException, AirflowFailException, TaskDeferred
from tideline_airflow.triggers import DumpTrigger
from tideline_airflow.verify import (
    ChangedKeysOperator,
    CompareOperator,
    ReadOperator,
    ResultOperator,
)

SUBMIT = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
calls = json.loads((folder / "calls.json").read_text())
calls.append(sys.argv[1:])
(folder / "calls.json").write_text(json.dumps(calls))
step = json.loads((folder / "script.json").read_text())[len(calls) - 1]
if step["result"] is not None:
    path = pathlib.Path(sys.argv[sys.argv.index("--result") + 1].removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(step["result"])
sys.exit(step["exit"])
"""
T = "public.orders"
READ = {"request_id": "r1", "manifest_number": 7, "tables": {T: 9}}
EQUAL = TableResult(T, VerificationOutcome.EQUAL, seq=40, rows=9, target_version=3, app_id="app")
CHANGING = replace(
    EQUAL, outcome=VerificationOutcome.CHANGING, changing=1, changed_keys=(("canary-7",),)
)
DIFFERS = replace(
    EQUAL,
    outcome=VerificationOutcome.DIFFERS,
    missing=1,
    keys=(DifferentKey(("canary-8",), "missing"),),
)


class Submit:
    """The stand-in for spark-submit: the result of each call, and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "spark-submit"
        program.write_text(SUBMIT.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        (folder / "calls.json").write_text("[]")

    def shall(self, *results: TableResult | None, exit_code: int = 0) -> None:
        """The result that each call leaves, None for no result at all."""
        script = [
            {
                "result": None
                if one is None
                else encode_verification(Verification("id", "shop", "i", "r1", (one,))).decode(),
                "exit": exit_code,
            }
            for one in results
        ]
        (self.folder / "script.json").write_text(json.dumps(script))

    @property
    def calls(self) -> list[list[str]]:
        found: list[list[str]] = json.loads((self.folder / "calls.json").read_text())
        return found


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    made = Submit(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    local = json.dumps({"conn_type": "spark", "host": "local[2]"})
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", local)
    monkeypatch.setenv(verify.APPLICATION_VARIABLE, "/jobs/verify.py")

    def planned(settings: Any, request_id: str, *, verify_id: str, **more: Any) -> Planned:
        assert more["tables"] == [T]
        return Planned(VerifyPlan(verify_id, "shop", "i", "file:///s", request_id, ()), ())

    monkeypatch.setattr(verification, "plan_verification", planned)
    yield made


@pytest.fixture
def compare(config: Path) -> CompareOperator:
    return CompareOperator(task_id="compare", reads=READ, config=str(config))


def test_the_worker_is_asked_to_read_only(config: Path, worker: Any) -> None:
    worker.delayed.set()
    read = ReadOperator(
        task_id="read", tables=[T], sample_percent=5, config=str(config), defer_after_s=0.0
    )
    with pytest.raises(TaskDeferred) as deferred:
        read.execute(TaskContext(read).values)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DumpTrigger)
    request = parse_request(trigger.request.encode())
    assert (request.purpose, request.sample_percent) == ("verify", 5)


def test_what_is_compared_is_kept(
    compare: CompareOperator, submit: Submit, settings: Settings, task_log: TaskLog
) -> None:
    submit.shall(DIFFERS)
    summary = compare.execute(TaskContext(compare).values)
    [call] = submit.calls
    assert call[-5] == "/jobs/verify.py"
    assert call[-4] == "--plan" and call[-3].endswith("/plan.json")
    assert call[-2] == "--result" and call[-1].endswith("/result.json")
    assert summary["tables"] == {T: {"proof": "differs", "seq": 40, "differences": 1, "moving": 0}}
    assert summary["again"] == []
    assert "Spark-Submit cmd: " in task_log.text
    assert "canary" not in json.dumps(summary) + task_log.text
    kept = read_verification(settings, summary["verify_id"])
    assert kept is not None
    assert kept.tables == (DIFFERS,)


def test_a_job_that_died_is_run_again_and_one_that_ended_is_not(
    compare: CompareOperator, submit: Submit
) -> None:
    submit.shall(None, EQUAL, exit_code=1)
    with pytest.raises(AirflowException, match="ended with exit code 1"):
        compare.execute(TaskContext(compare, try_number=1).values)
    # It had written its result when it was killed.
    first = compare.execute(TaskContext(compare, try_number=2).values)
    again = compare.execute(TaskContext(compare, try_number=3).values)
    assert (first, len(submit.calls)) == (again, 2)


def test_keys_that_changed_are_read_again(
    compare: CompareOperator,
    submit: Submit,
    settings: Settings,
    config: Path,
    worker: Any,
    task_log: TaskLog,
) -> None:
    submit.shall(CHANGING, replace(EQUAL, seq=50, rows=1, scope=Scope.KEYS))
    summary = compare.execute(TaskContext(compare).values)
    assert summary["again"] == [[T]]
    assert "canary" not in json.dumps(summary)
    changed = ChangedKeysOperator(task_id="moving", compared=summary)
    assert changed.execute(TaskContext(changed).values) == [[T]]
    worker.delayed.set()
    read = ReadOperator(
        task_id="read_again",
        tables=[T],
        first=summary,
        priority=4,
        chunk_rows=50,
        delay_ms=20,
        sample_percent=5,
        config=str(config),
        defer_after_s=0.0,
    )
    with pytest.raises(TaskDeferred) as deferred:
        read.execute(TaskContext(read).values)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DumpTrigger)
    request = parse_request(trigger.request.encode())
    assert (request.tables, request.keys) == ((T,), (("canary-7",),))
    assert (request.purpose, request.sample_percent) == ("verify", None)
    # As urgent as the first pass, and as slow.
    assert (request.priority, request.chunk_rows, request.delay_ms) == (4, 50, 20)

    later = CompareOperator(
        task_id="compare_again",
        reads=[{**READ, "request_id": "r2"}],
        first=summary,
        config=str(config),
    )
    for number in (1, 2):  # A second try makes the same of it.
        both = later.execute(TaskContext(later, try_number=number).values)
        assert both["verify_id"] == summary["verify_id"]
        assert both["tables"][T] == {"proof": "equal", "seq": 40, "differences": 0, "moving": 0}
        kept = read_verification(settings, both["verify_id"])
        assert kept is not None
        assert (kept.tables[0].compared_later, kept.tables[0].later_seq) == (1, 50)
    report = ResultOperator(task_id="report", compared=summary, config=str(config))
    assert report.execute(TaskContext(report).values)[T]["proof"] == "equal"
    assert f"{T} is equal" in task_log.text and "canary" not in task_log.text


@pytest.mark.parametrize("result", [EQUAL, CHANGING, DIFFERS])
def test_a_result_says_when_it_was_read_and_how_much(result: TableResult) -> None:
    """As `tideline verify` does."""
    at = replace(result, source_time_us=1_700_000_000_000_000, sample_percent=5.0)
    words = " at seq 40 (source time 2023-11-14 22:13:20Z) (a sample of 5.0 %)"
    assert words in verify.describe_result(at)


@pytest.mark.parametrize(
    "result",
    [DIFFERS, TableResult(T, VerificationOutcome.NOT_COMPARED, reason="it is quarantined")],
)
def test_the_report_fails_with_names_and_no_keys(
    compare: CompareOperator, submit: Submit, config: Path, result: TableResult, task_log: TaskLog
) -> None:
    submit.shall(result, exit_code=1)
    summary = compare.execute(TaskContext(compare).values)
    report = ResultOperator(task_id="report", compared=summary, config=str(config))
    with pytest.raises(AirflowFailException, match=r"public\.orders") as failed:
        report.execute(TaskContext(report).values)
    assert T in task_log.text and "canary" not in str(failed.value) + task_log.text
