"""The DAG files: thin, cheap to import, and typed params that refuse nonsense."""

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
DAG_FILES = sorted((ROOT / "dags").glob("*.py"))
SCHEDULES = {
    "merge": "*/5 * * * *",
    "repair": "NullTimetable",
    "backfill": "0 0 * * *",
    "steer": "NullTimetable",
    "verify": "NullTimetable",
    "maintain": "30 3 * * *",
    "rebuild": "NullTimetable",
}
ONE_TASK = {
    "steer": "default_pool",
    "maintain": "tideline_spark",
    "rebuild": "tideline_spark",
}
"""DAGs of a single task, and the pool that it takes a slot of."""
VERIFY = {
    "read": [],
    "compare": ["read"],
    "moving": ["compare"],
    "read_again": ["moving"],
    "compare_again": ["compare", "read_again"],
    "report": ["compare", "compare_again"],
}
HEAVY = ("pyspark", "pyarrow", "capture", "spark_jobs", "deltalake", "obstore", "numpy", "pandas")


def look(path: Path, **environment: str) -> dict[str, Any]:
    """What a DAG file makes, imported in a process of its own, as Airflow's parser does."""
    found: dict[str, Any] = json.loads(_look(path, tuple(environment.items())))
    return found


@cache
def _look(path: Path, environment: tuple[tuple[str, str], ...]) -> str:
    """As JSON; each file is imported once, which takes seconds."""
    program = """
import json, runpy, sys
from airflow.sdk import DAG
sys.path.insert(0, sys.argv[1])
made = []
plain = DAG.__exit__
def leave(dag, *rest):
    made.append(dag)
    return plain(dag, *rest)
DAG.__exit__ = leave
runpy.run_path(sys.argv[2])
heavy = [name for name in sys.argv[3].split(",") if name in sys.modules]
[dag] = made
print(json.dumps({
    "dag_id": dag.dag_id,
    "heavy": heavy,
    "schedule": str(getattr(dag.timetable, "expression", None) or type(dag.timetable).__name__),
    "tasks": {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks},
    "params": list(dag.params),
    "templates": {task.task_id: list(task.template_fields) for task in dag.tasks},
    "pools": {task.task_id: task.pool for task in dag.tasks},
    "retries": sorted({task.retries for task in dag.tasks}),
    "package": sys.modules["tideline_airflow"].__file__,
}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "plugins"), str(path), ",".join(HEAVY)],
        env={**os.environ, **dict(environment)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_each_has_its_schedule() -> None:
    assert [path.stem for path in DAG_FILES] == sorted(SCHEDULES)


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_under_a_hundred_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 100


@pytest.mark.parametrize("path", DAG_FILES, ids=lambda path: path.name)
def test_cheap_wiring(path: Path) -> None:
    dag = look(path)
    assert dag["dag_id"] == f"tideline_{path.stem}"
    assert dag["heavy"] == []
    assert dag["retries"] == [2]
    assert dag["schedule"] == SCHEDULES[path.stem]
    if path.stem in ONE_TASK:
        assert dag["tasks"] == {path.stem: []}
        assert dag["pools"] == {path.stem: ONE_TASK[path.stem]}
        return
    if path.stem == "verify":
        spark = {name for name, pool in dag["pools"].items() if pool == "tideline_spark"}
        assert spark == {"compare", "compare_again"}
        assert dag["tasks"] == VERIFY
        return
    assert dag["pools"].pop("merge") == "tideline_spark"
    assert set(dag["pools"].values()) == {"default_pool"}
    asks: dict[str, list[str]] = {} if path.stem == "merge" else {"ask": []}
    assert dag["tasks"] == {
        **asks,
        "plan": sorted(asks),
        "merge": ["plan"],
        "report": ["merge"],
    }


def test_what_each_form_offers() -> None:
    pace = {"priority", "chunk_rows", "delay_ms", "cancel_with_task"}
    ranges = {"key_from", "key_to", "time_column", "time_from", "time_to"}
    fields = {path.stem: set(look(path)["params"]) for path in DAG_FILES}
    assert fields == {
        "merge": set(),
        "repair": {"tables", "keys", *ranges, *pace},
        "backfill": {"tables", "column", "keys", *pace},
        "steer": {"action", "requests", "all", "chunk_rows", "delay_ms"},
        "verify": {"tables", "key_from", "key_to", "sample_percent", *pace},
        "maintain": {"tables"},
        "rebuild": {"table", "mode", "since_dump", "accept_differences", "anew"},
    }


@pytest.mark.parametrize("name", ["repair", "backfill"])
def test_nothing_that_may_be_a_row_value_is_a_template(name: str) -> None:
    """Airflow keeps rendered templates and shows them to everybody who sees the run."""
    templates = look(ROOT / "dags" / f"{name}.py")["templates"]["ask"]
    assert set(templates) == {
        "tables",
        "priority",
        "chunk_rows",
        "delay_ms",
        "cancel_with_task",
        "config",
    }


def test_the_merge_schedule_is_a_setting() -> None:
    path = ROOT / "dags" / "merge.py"
    assert look(path, TIDELINE_MERGE_SCHEDULE="@continuous")["schedule"] == "ContinuousTimetable"
    assert look(path, TIDELINE_MERGE_SCHEDULE="")["schedule"] == "NullTimetable"


def test_the_plugins_folder_holds_one_plugin_and_a_package() -> None:
    """The loader executes every file that .airflowignore does not name, under its bare name."""
    plugins = ROOT / "plugins"
    assert (plugins / ".airflowignore").read_text().split() == ["tideline_airflow/"]
    assert [path.name for path in plugins.glob("*.py")] == ["tideline_plugin.py"]
