"""A merge task on a standalone cluster: the driver here, executors on two workers, by the real
spark-submit. What is on its command line is in `test_airflow_merge`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from devtools.services.spark_cluster import SparkCluster
from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.faults.every_mode import EveryMode
from tests.fixtures.settings import as_toml
from tideline.contract.errors import Misconfigured
from tideline.java import java_home
from tideline_airflow.merge import MergeOperator

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]


@pytest.fixture
def tables(tmp_path: Path) -> EveryMode:
    made = EveryMode(tmp_path, seed=17)
    made.fill()
    return made


def config_of(tables: EveryMode, cluster: SparkCluster, *, shared: bool) -> str:
    settings = tables.history.settings
    sizes = {"driver_memory": "1g", "executor_memory": "512m", "executor_cores": 1}
    shown = {name: value for name, value in cluster.settings.items() if name != "master"}
    path = tables.root / "tideline.toml"
    path.write_text(
        as_toml(
            {
                "pipeline": settings.pipeline,
                "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
                "store": {"url": settings.store.url},
                "warehouse": {"url": settings.warehouse.url},
                "merge": {**shown, **sizes, "shared_files": shared},
                "tables": {name: dict(keys) for name, keys in tables.settings.items()},
            }
        )
    )
    return str(path)


def test_a_connection_to_a_cluster(
    tables: EveryMode,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    task_log: TaskLog,
) -> None:
    """In files that all of it sees: refused until the settings say so, then merged."""
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        there = {"conn_type": "spark", "host": cluster.master.url, "extra": {}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(there))
        merge = MergeOperator(task_id="merge", config=config_of(tables, cluster, shared=False))
        with pytest.raises(Misconfigured, match=r"may be other machines"):
            merge.execute(TaskContext(merge).values)
        merge = MergeOperator(task_id="merge", config=config_of(tables, cluster, shared=True))
        merge.execute(TaskContext(merge, clears=1).values)
        ran = cluster.master.state()["completedapps"]
        assert len(ran) == 2 and {one["memoryperexecutor"] for one in ran} == {512}
        assert "Spark-Submit cmd: " in task_log.text
        assert cluster.master.secret_file.read_text() not in task_log.text
    tables.check()
