"""A merge and a repair by the real operators, with a real spark-submit, chain and tables in S3, on
this machine and on a cluster: no secret is in what Airflow keeps or Spark shows, and on no command
line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from devtools.services.s3 import S3Server
from devtools.services.spark_cluster import EXECUTOR, SparkCluster
from devtools.services.valkey import ValkeyServer
from tests.airflow.chain_source import TABLE, ChainSource, Order
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import TaskContext
from tests.airflow.task_log import TaskLog
from tests.fixtures.object_storage import place_in, require_s3
from tests.fixtures.settings import as_toml
from tests.support.cluster_traces import logs, pages
from tests.support.command_lines import CommandLines
from tests.support.spark_events import DRIVER, Application, SparkEvents
from tideline.contract.layout import table_path
from tideline.contract.request import DumpRequest
from tideline.contract.schema import parse_table
from tideline.settings import Settings, load_settings
from tideline.store.objects import open_store
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table
from tideline_airflow.dump import DumpOperator
from tideline_airflow.merge import MergeOperator

DAY = datetime(2024, 3, 1, tzinfo=UTC)
SUBMIT = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True, slots=True)
class Spark:
    """Where the jobs of tasks run: the host of Airflow's connection, and what ``[merge]`` has for
    it. ``cluster`` is None for a local master."""

    host: str
    merge: Mapping[str, Any]
    cluster: SparkCluster | None = None

    @property
    def secrets(self) -> list[str]:
        return [] if self.cluster is None else [self.cluster.master.secret_file.read_text()]

    def ran(self, one: Application) -> bool:
        """Whether it is one of this Spark's applications, all of whose tasks ran there: on a
        cluster by the executors that joined."""
        if self.cluster is None:
            return set(one.tasks) == {DRIVER}
        known = {app["id"] for app in self.cluster.master.state()["completedapps"]}
        return one.id in known and bool(one.tasks) and set(one.tasks) <= one.executors

    def shown(self) -> Iterator[str]:
        """What a cluster's master, workers and executors show and write."""
        if self.cluster is not None:
            yield from pages(self.cluster)
            yield from logs(self.cluster)


@pytest.fixture(params=["local", "cluster"])
def spark_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spark]:
    require_s3()
    if request.param == "local":
        yield Spark("local[1]", {"driver_memory": "1g", "master": "local[1]"})
        return
    sizes = {"driver_memory": "1g", "executor_memory": "512m", "executor_cores": 1}
    with SparkCluster(tmp_path / "cluster") as cluster:
        own = {name: value for name, value in cluster.settings.items() if name != "master"}
        yield Spark(cluster.master.url, {**own, **sizes}, cluster)


@pytest.fixture
def in_s3(
    tmp_path: Path,
    s3: S3Server,
    valkey: ValkeyServer,
    source: NoSource,
    pipeline: str,
    spark_place: Spark,
) -> Path:
    place = place_in(s3)
    values = {
        "pipeline": pipeline,
        "source": {"url": source.url, "password_file": "/nowhere/source_password"},
        "store": {"url": f"{place.url}/store", **s3.access},
        "control": {"url": valkey.url()},
        "warehouse": {"url": f"{place.url}/warehouse"},
        "merge": spark_place.merge,
    }
    path = tmp_path / "tideline.toml"
    path.touch(mode=0o600)
    path.write_text(as_toml(values))
    return path


def notes(settings: Settings) -> dict[int, str]:
    """What the warehouse has, by key."""
    place = settings.warehouse_storage
    table = delta_table(table_path(place.url, parse_table(TABLE)), storage_options(place))
    found = QueryBuilder().register("t", table).execute("SELECT id, note FROM t").read_all()
    return {row["id"]: row["note"] for row in pa.table(found).to_pylist()}


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_merge_and_a_repair_tell_no_secret(
    in_s3: Path,
    s3: S3Server,
    spark_place: Spark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task_log: TaskLog,
) -> None:
    """Neither that of S3 nor a cluster's, to which a connection leads alone."""
    connection = {"conn_type": "spark", "host": spark_place.host}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    events = SparkEvents(tmp_path / "spark")
    monkeypatch.setenv("SPARK_CONF_DIR", str(events.configuration))
    settings = load_settings(in_s3)
    secrets = [s3.secret_access_key, *spark_place.secrets]
    source, lines, kept = ChainSource(settings), CommandLines(secrets, [SUBMIT, EXECUTOR]), []
    config = str(in_s3)
    source.dump(DumpRequest("first", (TABLE,)))
    source.change(*(Order(number, f"order {number}", DAY) for number in range(1, 6)))
    ask = DumpOperator(task_id="ask", tables=[TABLE], keys=[["1"], ["2"]], config=config)
    merges = [MergeOperator(task_id=name, config=config) for name in ("merge", "repair")]
    with lines.watched(), StubWorker(settings, source.dump):
        kept.append(merges[0].execute(TaskContext(merges[0]).values))
        assert notes(settings) == {n: one.note for n, one in source.rows.items()}
        source.rows[1] = Order(1, "not in the log", DAY)
        kept.append(ask.execute(TaskContext(ask).values))
        kept.append(merges[1].execute(TaskContext(merges[1]).values))
    assert notes(settings) == {n: one.note for n, one in source.rows.items()}
    assert len(lines.having(SUBMIT)) >= 2, "no spark-submit was seen"
    assert bool(lines.having(EXECUTOR)) == (spark_place.cluster is not None)
    assert lines.telling == set()
    jobs = events.ended()
    assert len(jobs) == 2 and all(spark_place.ran(one) for one in jobs), jobs
    shown = [{n: getattr(one, n) for n in type(one).template_fields} for one in (ask, *merges)]
    assert "Spark-Submit cmd: " in task_log.text
    written = [json.dumps(kept, default=str), task_log.text, str(shown), *spark_place.shown()]
    for secret in secrets:
        assert not [text for text in (*written, *(one.text for one in jobs)) if secret in text]
    store = open_store(settings.store)
    for key in store.list(""):
        held = store.get(key) or b""
        assert not [one for one in secrets if one.encode() in held], key
