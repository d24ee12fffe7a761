# ruff: noqa: S608  statements are made of constants, and of names that are quoted
"""Every DAG on a real scheduler, from every source, with tables and columns of hostile names."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from devtools.services.airflow import AirflowOptions, AirflowServices
from devtools.services.airflow_api import AirflowApi
from devtools.services.postgres import PostgresServer
from tests.airflow.whole_line import BIN, database
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.hostile_names import CANARY, VARIABLE
from tests.fixtures.hostile_source import Made, Server, assert_seen, compare
from tests.fixtures.sources import ConformingSource
from tideline.contract.errors import Misconfigured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(7_200)]

PATIENCE_S = 1_800.0
TIMES = (
    f"${{env:{VARIABLE}}}",
    f"{{{{ env['{VARIABLE}'] }}}}",
    "a'b",
    'a"b',
    "a\nINFO fake line",
    "`; DROP TABLE t; #",
)
"""Columns of the table ``timed`` that hold times."""


@dataclass
class Runs:
    """DAG runs that have succeeded: ``done`` are DAG and run id."""

    api: AirflowApi
    done: list[tuple[str, str]] = field(default_factory=list)

    def run(self, name: str, *, logical_date: str | None = None, **conf: Any) -> None:
        dag_id = f"tideline_{name}"
        run_id = self.api.trigger(dag_id, conf, logical_date=logical_date)
        state = self.api.wait(dag_id, run_id, timeout_s=PATIENCE_S)
        tasks = self.api.tasks(dag_id, run_id)
        failed = [self.api.log(dag_id, run_id, t)[-4000:] for t in tasks if tasks[t] == "failed"]
        assert state == "success", (name, conf, tasks, *failed)
        self.done.append((dag_id, run_id))

    def assert_data(self) -> None:
        """No log or XCom of a run has taken a name for anything else."""
        for dag_id, run_id in self.done:
            for task in self.api.tasks(dag_id, run_id):
                assert_seen(self._log(dag_id, run_id, task))
                assert CANARY not in json.dumps(self._returned(dag_id, run_id, task))

    def _log(self, dag_id: str, run_id: str, task: str) -> str:
        try:
            return self.api.log(dag_id, run_id, task)
        except Misconfigured:  # A task that was left out has none.
            return ""

    def _returned(self, dag_id: str, run_id: str, task: str) -> Any:
        try:
            return self.api.xcom(dag_id, run_id, task)
        except Misconfigured:
            return None


@contextmanager
def airflow_of(
    pipeline: Pipeline[Any], postgres: PostgresServer, folder: Path
) -> Iterator[tuple[AirflowServices, str]]:
    """An Airflow whose processes have the canary in their environment; the dsn of its metadata."""
    metadata = database(postgres, f"hostile_{time.time_ns()}")
    options = AirflowOptions(pipeline.config, "", BIN, {VARIABLE: CANARY})
    with AirflowServices(folder / "airflow", metadata, options) as airflow:
        yield airflow, metadata


def make_timed(server: Server) -> str:
    """A row for each day of March; the table's name."""
    moment = "timestamp" if server.is_postgres else "DATETIME"
    columns = ", ".join(f"{server.quote(name)} {moment}" for name in TIMES)
    with server.session() as run:
        run(f"CREATE TABLE timed (id INT PRIMARY KEY, {columns})")
        for day in range(1, 32):
            moments = ", ".join([f"'2026-03-{day:02} 12:00:00'"] * len(TIMES))
            run(f"INSERT INTO timed VALUES ({day}, {moments})")
    return "timed"


def wait_for_dumps(pipeline: Pipeline[Any], worker: WorkerProcess, tables: list[str]) -> None:
    def dumped() -> bool:
        assert not worker.ended(), worker.output()[-3000:]
        found = pipeline.state().tables
        return all(t in found and found[t].complete_seq is not None for t in tables)

    poll("every table is dumped", dumped, timeout_s=PATIENCE_S)


def assert_not_stored(metadata: str, folder: Path) -> None:
    """The canary is in no file and in no row of Airflow's own database."""
    for path in folder.rglob("*"):
        assert CANARY not in str(path)
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path
    connection = psycopg2.connect(metadata)
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT quote_ident(table_name) FROM information_schema.tables"
            " WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
        )
        tables = [name for (name,) in cursor.fetchall()]
        assert "dag_run" in tables
        for table in tables:
            cursor.execute(f"SELECT count(*) FROM {table} t WHERE t::text LIKE '%{CANARY}%'")
            assert cursor.fetchone() == (0,), table
    connection.close()


def test_every_dag(
    conforming: ConformingSource,
    pipeline_of: PipelineFactory,
    postgres: PostgresServer,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    server = Server(conforming)
    made = server.make()
    timed = made.table(make_timed(server))
    pipeline = pipeline_of(conforming, merge={"driver_memory": "2g"})
    worker = pipeline.start()
    wait_for_dumps(pipeline, worker, [*made.tables, timed])
    with airflow_of(pipeline, postgres, tmp_path) as (airflow, metadata):
        runs = Runs(airflow.api)
        runs.run("merge")
        server.change(made)
        pipeline.catch_up(worker)
        run_all(runs, made, timed)
        runs.assert_data()
        compare(pipeline.settings.warehouse.url, made, {}, spark)
        assert_not_stored(metadata, tmp_path)
    assert not worker.ended(), worker.output()[-3000:]
    assert_seen(worker.output())


def run_all(runs: Runs, made: Made, timed: str) -> None:
    """Every DAG; what is about one table, for every twentieth and the widest."""
    runs.run("repair", tables=made.tables)
    for column in TIMES:
        runs.run(
            "backfill",
            tables=[timed],
            column=column,
            logical_date=f"2026-03-{TIMES.index(column) + 1:02}T00:00:00+00:00",
        )
    runs.run("verify", tables=[*made.tables, timed])
    for table in (*made.tables[::20], made.table("wide")):
        runs.run("rebuild", table=table)
    runs.run("maintain")
    runs.run("maintain", tables=made.tables[::10])
    runs.run("control", action="tune", all=True, delay_ms="0")
