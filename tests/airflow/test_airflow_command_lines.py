"""What each task that runs a job starts on clusters that we do not run: the command line that the
Spark provider makes for YARN and Kubernetes, with the driver here and there."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import DAG

from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.fixtures.settings import as_toml
from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, load_settings
from tideline.warehouse.hadoop import SETTINGS_VARIABLE, s3_settings
from tideline_airflow.dag_set import tideline_dags
from tideline_airflow.spark_job import SparkJobOperator

MASTERS = {"kubernetes": "k8s://https://10.0.0.9:6443", "yarn": "yarn"}
SUBMIT = """#!/bin/sh
printf '%s\\0' "$@" > {folder}/arguments
env > {folder}/environment
echo 'Container exit code: 0'
"""
"""Its last line is one that the provider waits for on Kubernetes."""
VALUES = {
    "pipeline": "shop",
    "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
    "store": {
        "url": "s3://changes/tideline",
        "access_key_id": "AKIA",
        "secret_access_key": "canary-of-s3",
        "session_token": "canary-of-session",
    },
    "warehouse": {
        "url": "s3://lake/tables",
        "format": "iceberg",
        "iceberg": {
            "catalog": "rest",
            "url": "https://catalog.example.org",
            "user": "tideline",
            "password": "canary-of-catalog",
        },
    },
    "merge": {
        "executor_memory": "3g",
        "executor_cores": 2,
        "driver_memory": "5g",
        "driver_host": "10.0.0.2",
        "authenticate_secret": "canary-of-spark",
        "jars": "local:///opt/jars/all.jar",
        "py_files": "s3://code/tideline.whl",
    },
}
PROGRAM = ["local:///jobs/job.py", "--plan", "s3://changes/a plan"]


@dataclass(frozen=True)
class Started:
    """What spark-submit was given."""

    arguments: list[str]
    environment: str

    def option(self, name: str) -> str:
        return self.arguments[self.arguments.index(name) + 1]

    @property
    def settings(self) -> set[str]:
        """Those of ``--conf``."""
        pairs = zip(self.arguments, self.arguments[1:], strict=False)
        return {value for name, value in pairs if name == "--conf"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "tideline.toml"
    path.touch(mode=0o600)
    path.write_text(as_toml(VALUES))
    return load_settings(path)


@pytest.fixture
def jobs(tmp_path: Path) -> list[SparkJobOperator]:
    """Each task of the DAGs that runs a job."""
    dags: dict[str, DAG] = tideline_dags(str(tmp_path / "tideline.toml"))
    tasks = [task for dag in dags.values() for task in dag.tasks]
    return [task for task in tasks if isinstance(task, SparkJobOperator)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for spark-submit, and what it was given."""
    made = tmp_path / "bin"
    made.mkdir()
    (made / "spark-submit").write_text(SUBMIT.format(folder=made))
    (made / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", f"{made}{os.pathsep}{os.environ['PATH']}")
    # Airflow's client of Kubernetes, which the provider only looks for.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    return made


def connect(monkeypatch: pytest.MonkeyPatch, master: str, mode: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": mode}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def started(job: Any, settings: Settings, folder: Path) -> Started:
    job.submit(PROGRAM[0], PROGRAM[1:], settings, TaskContext(job).values)
    arguments = (folder / "arguments").read_text().split("\0")[:-1]
    return Started(arguments, (folder / "environment").read_text())


@pytest.mark.parametrize("mode", ["client", "cluster"])
@pytest.mark.parametrize("cluster", MASTERS)
def test_each_job_on_a_cluster_with_an_access_of_its_own(
    settings: Settings,
    jobs: list[SparkJobOperator],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    task_log: TaskLog,
    cluster: str,
    mode: str,
) -> None:
    """Sizes, jars and the program; of the access to S3 nothing, anywhere."""
    connect(monkeypatch, MASTERS[cluster], mode)
    assert "canary-of-session" in str(s3_settings(settings)), "there is nothing to keep"
    names = {f"{job.dag_id}.{job.task_id}" for job in jobs}
    assert {one.partition(".")[0].removeprefix("tideline_") for one in names} == {
        "merge", "repair", "backfill", "verify", "rebuild", "maintain",
        "aggregate",
    }  # fmt: skip
    for job in jobs:
        got = started(job, settings, folder)
        assert (got.option("--master"), got.option("--deploy-mode")) == (MASTERS[cluster], mode)
        assert got.arguments[-len(PROGRAM) :] == PROGRAM
        assert got.option("--driver-memory") == "5g"
        assert got.option("--jars") == "local:///opt/jars/all.jar"
        sizes = {
            "spark.executor.memory=3g",
            "spark.executor.cores=2",
            "spark.tideline.sharedFiles=false",
        }
        addresses = {"spark.driver.host=10.0.0.2", "spark.driver.bindAddress=10.0.0.2"}
        assert got.settings == (sizes if mode == "cluster" else sizes | addresses)
        wheel = ["--py-files", "s3://code/tideline.whl"] if mode == "cluster" else []
        assert [one for one in got.arguments if one in ("--py-files", *wheel)] == wheel
        shown = {name: getattr(job, name) for name in job.template_fields}
        for text in (got.arguments, got.environment, shown, job.env_vars):
            assert "canary" not in str(text) and SETTINGS_VARIABLE not in str(text)
    assert "Spark-Submit cmd: " in task_log.text and "canary" not in task_log.text


def test_kubernetes_needs_the_provider_that_knows_it(
    settings: Settings,
    tmp_path: Path,
    jobs: list[SparkJobOperator],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether a connection names it or `merge.master`. Without it the Spark provider fails at a
    name, or says that something is missing."""
    monkeypatch.setenv("TIDELINE_MERGE__MASTER", MASTERS["kubernetes"])
    settings = load_settings(tmp_path / "tideline.toml")
    for connected in (False, True):
        if connected:
            connect(monkeypatch, MASTERS["kubernetes"], "cluster")
        for absent in ("no name", "none"):
            monkeypatch.delattr(spark_submit, "kube_client", raising=False)
            if absent == "none":
                monkeypatch.setattr(spark_submit, "kube_client", None, raising=False)
            with pytest.raises(Misconfigured, match="cannot use Kubernetes here") as refused:
                started(jobs[0], settings, folder)
            assert "apache-airflow-providers-cncf-kubernetes" in str(refused.value.hint)
