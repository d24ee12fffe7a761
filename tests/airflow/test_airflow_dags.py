"""The DAGs: made by one thin file, cheap to import, each with the form that it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = (ROOT / "dags" / "tideline_dags" / "pipeline.py").read_text()
SCHEDULES = {
    "merge": "*/5 * * * *",
    "repair": "NullTimetable",
    "backfill": "0 0 * * *",
    "control": "NullTimetable",
    "verify": "NullTimetable",
    "maintain": "30 3 * * *",
    "rebuild": "NullTimetable",
    "aggregate": "NullTimetable",
}
TASKS: dict[str, dict[str, list[str]]] = {
    "merge": {"merge": []},
    "repair": {"ask": [], "merge": ["ask"]},
    "backfill": {"ask": [], "merge": ["ask"]},
    "control": {"control": []},
    "maintain": {"maintain": []},
    "rebuild": {"rebuild": []},
    "aggregate": {"aggregate": []},
    "verify": {
        "read": [],
        "compare": ["read"],
        "moving": ["compare"],
        "read_again": ["compare", "moving"],
        "compare_again": ["compare", "read_again"],
        "report": ["compare", "compare_again"],
    },
}
"""Each task and those that it waits for."""
OURS = ("tideline_capture", "tideline_spark")
HEAVY = (*OURS, "pyspark", "pyarrow", "deltalake", "obstore", "numpy", "pandas")


def look(file: str = FILE, **environment: str) -> dict[str, dict[str, Any]]:
    """The DAGs that ``file``'s text makes, by id, read in a process of its own, as Airflow does: it
    takes what registers itself."""
    found: dict[str, dict[str, Any]] = json.loads(_look(file, tuple(environment.items())))
    return found


@cache
def _look(file: str, environment: tuple[tuple[str, str], ...]) -> str:
    """As JSON; each is read once, which takes seconds."""
    program = """
import json, sys, types
from airflow.sdk.definitions._internal.contextmanager import DagContext
sys.path.insert(0, sys.argv[1])
module = sys.modules["made"] = types.ModuleType("made")
DagContext.current_autoregister_module_name = "made"
exec(sys.argv[2], module.__dict__)
heavy = [name for name in sys.argv[3].split(",") if name in sys.modules]
PACE = ("priority", "chunk_rows", "delay_ms", "cancel_with_task")
def schedule(table):
    for name in ("expression", "_expression"):  # after and before Airflow 3.2
        if found := getattr(table, name, None):
            return found
    return type(table).__name__
print(json.dumps({
    dag.dag_id: {
        "heavy": heavy,
        "schedule": schedule(dag.timetable),
        "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
        "params": {name: dag.params.get_param(name).value for name in dag.params},
        "templates": {task.task_id: list(task.template_fields) for task in dag.tasks},
        "pools": {task.task_id: task.pool for task in dag.tasks},
        "configs": sorted({str(task.config) for task in dag.tasks if hasattr(task, "config")}),
        "paces": {
            task.task_id: [getattr(task, "partial_kwargs", vars(task)).get(name) for name in PACE]
            for task in dag.tasks
        },
        "retries": sorted({task.retries for task in dag.tasks}),
        "paused": dag.is_paused_upon_creation,
        "described": bool(dag.doc_md),
    }
    for dag, _ in DagContext.autoregistered_dags
}, default=str))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "plugins"), file, ",".join(HEAVY)],
        env={**os.environ, **dict(environment)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_one_thin_file() -> None:
    folder = ROOT / "dags" / "tideline_dags"
    kept_from_the_parser = (folder / ".airflowignore").read_text().split()
    files = {path.name for path in (ROOT / "dags").rglob("*.py")}
    assert files - set(kept_from_the_parser) == {"pipeline.py"}
    assert len(FILE.splitlines()) < 20


def test_the_eight_as_they_arrive() -> None:
    dags = look()
    assert set(dags) == {f"tideline_{name}" for name in SCHEDULES}
    for dag_id, dag in dags.items():
        assert dag["heavy"] == []
        assert dag["retries"] == [2]
        assert dag["paused"] is False
        assert dag["described"]
        assert dag["schedule"] == SCHEDULES[dag_id.removeprefix("tideline_")]


@pytest.mark.parametrize("name", list(TASKS))
def test_tasks_and_pools(name: str) -> None:
    dag = look()[f"tideline_{name}"]
    assert dag["tasks"] == TASKS[name]
    spark = {task for task, pool in dag["pools"].items() if pool == "tideline_spark"}
    jobs = {"merge", "maintain", "rebuild", "aggregate", "compare", "compare_again"}
    assert spark == set(TASKS[name]) & jobs
    assert {pool for task, pool in dag["pools"].items() if task not in spark} <= {"default_pool"}


def test_what_each_form_offers() -> None:
    throttle = {"priority", "chunk_rows", "delay_ms", "cancel_with_task"}
    ranges = {"key_from", "key_to", "time_column", "time_from", "time_to"}
    fields = {
        dag_id.removeprefix("tideline_"): set(dag["params"]) for dag_id, dag in look().items()
    }
    assert fields == {
        "merge": set(),
        "repair": {"tables", "keys", *ranges, *throttle},
        "backfill": {"tables", "column", "keys", *throttle},
        "control": {"action", "requests", "all", "chunk_rows", "delay_ms"},
        "verify": {"tables", "key_from", "key_to", "sample_percent", *throttle},
        "maintain": {"tables"},
        "aggregate": {"names"},
        "rebuild": {"table", "mode", "since_dump", "accept_differences", "restart", "to"},
    }


@pytest.mark.parametrize("name", ["repair", "backfill"])
def test_nothing_that_may_be_a_row_value_is_a_template(name: str) -> None:
    """Airflow keeps rendered templates and shows them to everybody who sees the run."""
    assert set(look()[f"tideline_{name}"]["templates"]["ask"]) == {
        "tables",
        "priority",
        "chunk_rows",
        "delay_ms",
        "cancel_with_task",
        "config",
    }


def test_keys_that_are_read_again_are_as_urgent_as_the_rest_and_as_slow() -> None:
    paces = look()["tideline_verify"]["paces"]
    assert None not in paces["read"]
    assert paces["read_again"] == paces["read"]


def test_schedules_are_settings() -> None:
    often = look(TIDELINE_MERGE_SCHEDULE="@continuous", TIDELINE_MAINTAIN_SCHEDULE="")
    assert often["tideline_merge"]["schedule"] == "ContinuousTimetable"
    assert often["tideline_maintain"]["schedule"] == "NullTimetable"
    assert look(TIDELINE_MERGE_SCHEDULE="")["tideline_merge"]["schedule"] == "NullTimetable"
    after = look(TIDELINE_AGGREGATE_SCHEDULE="merged")["tideline_aggregate"]["schedule"]
    assert after == "AssetTriggeredTimetable"
    of_backfills = look(TIDELINE_BACKFILL_TABLES="a.b,a.c", TIDELINE_BACKFILL_COLUMN="at")
    params = of_backfills["tideline_backfill"]["params"]
    assert (params["tables"], params["column"]) == (["a.b", "a.c"], "at")


def test_two_pipelines_in_one_airflow() -> None:
    dags = look(
        "from tideline_airflow.dag_set import Spark, tideline_dags\n"
        "tideline_dags('/etc/shop.toml', prefix='shop', merge_schedule='')\n"
        "tideline_dags('/etc/bank.toml', prefix='bank', spark=Spark('bank_spark', 'bank_pool'))\n"
    )
    assert set(dags) == {f"{prefix}_{name}" for prefix in ("shop", "bank") for name in SCHEDULES}
    for dag_id, dag in dags.items():
        assert dag["configs"] == [f"/etc/{dag_id.partition('_')[0]}.toml"]
    assert dags["shop_merge"]["schedule"] == "NullTimetable"
    assert dags["bank_merge"]["pools"] == {"merge": "bank_pool"}


def test_the_plugins_folder_holds_one_plugin_and_a_package() -> None:
    """The loader executes every file that .airflowignore does not name, under its bare name."""
    plugins = ROOT / "plugins"
    assert (plugins / ".airflowignore").read_text().split() == ["tideline_airflow/"]
    assert [path.name for path in plugins.glob("*.py")] == ["tideline_plugin.py"]
