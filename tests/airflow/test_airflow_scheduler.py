"""All three DAGs on a real scheduler with its metadata in PostgreSQL, Spark and Delta included.

The source is in memory and its worker a stand-in (`chain_source`, `stub_worker`); everything from
the control queue to the warehouse is real. The tests share one Airflow and one table; each works
on keys of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import deltalake
import psycopg2
import pyarrow as pa
import pytest
import redis
from psycopg2 import sql

from devtools.services.airflow import DAGS, AirflowOptions, AirflowServices
from devtools.services.airflow_api import AirflowApi
from devtools.services.postgres import PostgresServer
from devtools.services.process_table import descendants
from devtools.services.valkey import ValkeyServer
from tests.airflow.chain_source import TABLE, ChainSource, Order
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import WAITING
from tests.fixtures.settings import as_toml
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.layout import table_path
from tideline.contract.request import Action, Answer, DumpRequest, RequestState
from tideline.contract.schema import parse_table
from tideline.settings import Settings, make_settings
from tideline_airflow.assets import table_asset

pytestmark = pytest.mark.timeout(1_200)

DAY = datetime(2024, 3, 1, tzinfo=UTC)
RUN_TIMEOUT_S = 600.0


@dataclass
class Line:
    """The whole line, from the source's rows to the warehouse's."""

    airflow: AirflowServices
    settings: Settings
    source: ChainSource
    worker: StubWorker

    @property
    def api(self) -> AirflowApi:
        return self.airflow.api

    def run(self, dag_id: str, **conf: Any) -> str:
        """Run a DAG to its end; returns the run's id once it has succeeded."""
        run_id = self.api.trigger(dag_id, conf)
        self.succeeds(dag_id, run_id)
        return run_id

    def succeeds(self, dag_id: str, run_id: str) -> None:
        state = self.api.wait(dag_id, run_id, timeout_s=RUN_TIMEOUT_S)
        assert state == "success", self.failure(dag_id, run_id)

    def failure(self, dag_id: str, run_id: str) -> str:
        tasks = self.api.tasks(dag_id, run_id)
        failed = [task for task, state in tasks.items() if state == "failed"]
        logs = [self.api.log(dag_id, run_id, task)[-4000:] for task in failed]
        return "\n".join([str(tasks), *logs])

    def warehouse(self) -> dict[int, tuple[str, datetime, int]]:
        """Key → note, placed_at and sequence number, as another program reads them."""
        path = table_path(self.settings.warehouse.url, parse_table(TABLE))
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
        found: Any = query.execute("select id, note, placed_at, _tl_seq from t").read_all()
        rows = zip(*pa.table(found).to_pydict().values(), strict=True)
        return {key: (note, placed_at, seq) for key, note, placed_at, seq in rows}

    def expect_equal(self) -> None:
        expected = {key: (row.note, row.placed_at) for key, row in self.source.rows.items()}
        assert {key: row[:2] for key, row in self.warehouse().items()} == expected


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[Line]:
    folder = tmp_path_factory.mktemp("airflow")
    nobody = NoSource()
    values = {
        "pipeline": "airflow_line",
        "source": {"url": nobody.url, "password_file": "/nowhere/source_password"},
        "store": {"url": (folder / "store").as_uri()},
        "control": {"url": valkey_server.url()},
        "warehouse": {"url": (folder / "warehouse").as_uri()},
        "merge": {"driver_memory": "1g", "master": "local[1]"},
    }
    config = folder / "tideline.toml"
    config.write_text(as_toml(values))
    settings = make_settings(values)
    source = ChainSource(settings)
    source.change(*(Order(key, f"first {key}", DAY) for key in range(100)))
    # Written behind the log's back: only a dump finds it.
    source.rows[1000] = Order(1000, "never in the log", DAY + timedelta(days=9))
    options = AirflowOptions(config=config, merge_schedule="")
    with (
        nobody,
        StubWorker(settings, source.dump) as worker,
        AirflowServices(folder / "airflow", metadata(postgres), options) as airflow,
    ):
        yield Line(airflow, settings, source, worker)
        # The rest of the module's tests are done: nothing of it may outlive the stop.
        pids = airflow.pids
        assert nobody.visitors() == 0, "Airflow connected to the source"
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() or descendants(pid)]


def test_the_scheduler_knows_the_dags_and_the_pool(line: Line) -> None:
    assert line.api.import_errors() == {}
    assert line.api.dags() == dict.fromkeys(DAGS, False)
    pools = {pool["name"]: pool["slots"] for pool in line.api.get("pools")["pools"]}
    assert pools["tideline_spark"] == 1


def doctor(line: Line, **changed: str) -> tuple[int, list[str]]:
    """What `tideline doctor --airflow` finds in Airflow's environment: exit code and lines."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "tideline"), "doctor", "--airflow"],
        env={**line.airflow.environment(), **changed},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_doctor_finds_all_that_the_dags_need(line: Line) -> None:
    code, lines = doctor(line)
    assert code == 0, lines
    found = {line.split()[1].rstrip(":") for line in lines if line.startswith("ok ")}
    assert {"settings", "connection", "java", "jars", "plugin", "dags", "pool"} <= found
    assert "ok      connection: Airflow has no connection spark_default: jobs run on" in (
        "\n".join(lines)
    )


def test_doctor_sees_the_connections_of_airflows_database(line: Line) -> None:
    """As the tasks do: those that are made on a page are nowhere else."""
    name, master = "our_cluster", "spark://127.0.0.1:7077"
    line.airflow.run("connections", "add", name, "--conn-type", "spark", "--conn-host", master)
    try:
        _, lines = doctor(line, TIDELINE_SPARK_CONN_ID=name)
    finally:
        line.airflow.run("connections", "delete", name)
    expected = f"ok      connection: jobs run on {master}, as the connection {name} says"
    assert expected in lines, lines


def test_doctor_names_what_is_missing_and_what_mends_it(line: Line, tmp_path: Path) -> None:
    code, lines = doctor(
        line,
        AIRFLOW__CORE__DAGS_FOLDER=str(tmp_path),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(tmp_path),
        TIDELINE_MERGE__JARS="/nowhere/delta.jar",
    )
    assert code != 0
    text = "\n".join(lines)
    for words in (
        f"ERROR   dags: no DAG of Tideline is in {tmp_path}",
        "ERROR   plugin: Airflow does not load the plugin tideline",
        "ERROR   jars: /nowhere/delta.jar cannot be read here",
        "fix: put dags/tideline_dags/pipeline.py into Airflow's folder of DAGs, or add",
    ):
        assert words in text, text


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"tables": []},
        {"tables": "public.orders"},
        {"tables": [1]},
        {"tables": ["public.orders"], "chunk_rows": 0},
        {"tables": ["public.orders"], "chunk_rows": "many"},
        {"tables": ["public.orders"], "delay_ms": -1},
        {"tables": ["public.orders"], "keys": [{"id": 1}]},
        {"tables": ["public.orders"], "keys": "1"},
        {"tables": ["public.orders"], "key_from": {"id": 1}},
        {"tables": ["public.orders"], "time_column": 5},
        {"tables": ["public.orders"], "priority": 11},
        {"tables": ["public.orders"], "cancel_with_task": "perhaps"},
    ],
    ids=str,
)
def test_params_that_make_no_sense_are_refused(line: Line, conf: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="answered 400"):
        line.api.trigger("tideline_repair", conf)


def test_a_repair_of_the_whole_table_then_nothing_is_left_to_merge(line: Line) -> None:
    line.source.rows.pop(99)  # behind the log's back, too
    run_id = line.run("tideline_repair", tables=[TABLE], chunk_rows=50, delay_ms=1)
    line.expect_equal()
    dumped = until(lambda: line.api.xcom("tideline_repair", run_id, "ask"))
    assert dumped["tables"] == {TABLE: len(line.source.rows)}
    request = line.worker.requests[dumped["request_id"]]
    assert (request.chunk_rows, request.delay_ms) == (50, 1)
    merged = until(lambda: line.api.xcom("tideline_repair", run_id, "merge"))
    assert merged["tables"][TABLE]["outcome"] == "applied"

    # What the repair has told of the table is not known to the merge task, which repeats it once.
    again = line.run("tideline_merge")
    told = until(lambda: line.api.xcom("tideline_merge", again, "merge"))
    assert (told["plans"], told["tables"][TABLE]["outcome"]) == ([], "already_applied")
    again = line.run("tideline_merge")
    tasks = until(lambda: line.api.tasks("tideline_merge", again))
    assert tasks == {"merge": "skipped"}


def test_a_command_from_the_form_and_one_that_makes_no_sense(line: Line) -> None:
    line.run("tideline_control", action="tune", all=True, delay_ms="20")
    assert line.worker.commands[-1].delay_ms == 20
    for conf in ({}, {"action": "stop"}, {"action": "tune", "delay_ms": "slow"}):
        with pytest.raises(Misconfigured, match="answered 400"):
            line.api.trigger("tideline_control", conf)


def test_who_clears_the_task_cancels_its_request_if_the_form_says_so(line: Line) -> None:
    """While it waits on its trigger; what Airflow then keeps and shows holds no key."""
    line.worker.delayed.set()
    line.worker.replace_dump(lambda request: Answer(request.request_id, RequestState.DONE))
    try:
        asked = len(line.worker.requests)
        conf = {"tables": [TABLE], "keys": ["7000123"], "cancel_with_task": True, "priority": 3}
        run_id = line.api.trigger("tideline_repair", conf)
        until(lambda: len(line.worker.requests) == asked + 1)
        until(lambda: line.api.tasks("tideline_repair", run_id)["ask"] == WAITING)
        first = list(line.worker.requests.values())[-1]
        assert (first.keys, first.priority) == ((("7000123",),), 3)
        task = f"dags/tideline_repair/dagRuns/{quote(run_id)}/taskInstances/ask"
        shown = line.api.get(task)
        assert shown["rendered_fields"]["tables"] == [TABLE]
        assert "7000123" not in repr(shown)
        until(lambda: looked_for(line))  # Only a trigger that runs can be killed.
        line.api.clear("tideline_repair", run_id)
        until(lambda: (Action.CANCEL, (first.request_id,)) in reported(line))
        line.worker.delayed.clear()
        line.succeeds("tideline_repair", run_id)
        assert "7000123" not in until(lambda: line.api.log("tideline_repair", run_id, "ask"))
    finally:
        line.worker.delayed.clear()
        line.worker.replace_dump(line.source.dump)


def looked_for(line: Line) -> bool:
    """Whether someone is connected to the queue who looked for an answer there: a trigger does it
    again and again, the task that asked has hung up before it was deferred."""
    with redis.Redis.from_url(line.settings.control.url.get_secret_value()) as client:
        return any(connected["cmd"] == "get" for connected in client.client_list())


def reported(line: Line) -> list[tuple[Action, tuple[str, ...] | None]]:
    return [(command.action, command.requests) for command in line.worker.commands]


@pytest.mark.long
def test_a_repair_of_keys_heals_those_only(line: Line) -> None:
    line.source.rows[10] = Order(10, "healed", DAY)
    line.source.rows[11] = Order(11, "not asked for", DAY)
    gone = line.source.rows.pop(12)
    line.run("tideline_repair", tables=[TABLE], keys=["10", "12"])
    held = line.warehouse()
    assert held[10][0] == "healed"
    assert held[11][0] == "first 11"
    assert 12 not in held
    line.source.rows |= {11: Order(11, "first 11", DAY), 12: gone}
    line.source.change(gone)


def test_a_merge_brings_changes_and_tells_who_waits_for_them(line: Line) -> None:
    line.source.change(Order(20, "second", DAY), Order(2000, "new", DAY))
    line.run("tideline_merge")
    held = line.warehouse()
    assert (held[20][0], held[2000][0]) == ("second", "new")
    extra = newest_event(line)
    assert extra["max_seq"] == max(row[2] for row in held.values())
    assert extra["complete_through_us"] > 0


def newest_event(line: Line) -> dict[str, int]:
    """The extra of the newest event of the table's asset."""
    uri = table_asset("airflow_line", TABLE).uri
    # Before Airflow 3.3 an asset is active only once a DAG waits for it.
    listed = line.api.get("assets", only_active="false")["assets"]
    asset = next(a for a in listed if a["uri"] == uri)
    events = line.api.get("assets/events", asset_id=asset["id"], order_by="-timestamp")
    extra: dict[str, int] = events["asset_events"][0]["extra"]
    return extra


def test_what_is_merged_without_airflow_is_told_too_and_once(line: Line) -> None:
    line.run("tideline_merge")
    line.source.change(Order(21, "merged elsewhere", DAY))
    tideline = str(Path(sys.executable).parent / "tideline")
    subprocess.run([tideline, "merge"], env=line.airflow.environment(), check=True, timeout=600)
    seq = line.warehouse()[21][2]
    assert newest_event(line)["max_seq"] < seq
    line.run("tideline_merge")
    assert newest_event(line)["max_seq"] == seq
    run_id = line.run("tideline_merge")
    assert line.api.tasks("tideline_merge", run_id) == {"merge": "skipped"}


@pytest.mark.long
def test_a_backfill_reads_its_interval_and_twice_changes_nothing(line: Line) -> None:
    day = DAY + timedelta(days=40)
    inside = Order(3000, "inside", day + timedelta(hours=5))
    outside = Order(3001, "outside", day + timedelta(days=1))
    line.source.rows |= {3000: inside, 3001: outside}
    conf = {"tables": [TABLE], "column": "placed_at"}

    def merged(requests: int) -> dict[int, tuple[str, datetime]]:
        until(lambda: len(line.worker.requests) == requests)
        [run_id] = until(lambda: line.api.runs("tideline_backfill", run_type="backfill"))
        line.succeeds("tideline_backfill", run_id)
        return {key: row[:2] for key, row in line.warehouse().items()}

    asked = len(line.worker.requests)
    first = line.api.backfill("tideline_backfill", day.isoformat(), day.isoformat(), conf)
    once = merged(asked + 1)
    assert once[3000] == (inside.note, inside.placed_at)
    assert 3001 not in once

    until(lambda: line.api.backfill_ended(first))
    words = ["--dag-id", "tideline_backfill", "--dag-run-conf", json.dumps(conf)]
    words += ["--from-date", day.isoformat(), "--to-date", day.isoformat()]
    line.airflow.run("backfill", "create", *words, "--reprocess-behavior", "completed")
    assert merged(asked + 2) == once
    del line.source.rows[3001]


def test_what_the_worker_says_is_in_the_log(line: Line) -> None:
    def refuse(request: DumpRequest) -> Answer:
        error, hint = "public.nosuch is not captured", "see tideline status"
        return Answer(request.request_id, RequestState.REFUSED, error=error, hint=hint)

    line.worker.replace_dump(refuse)
    try:
        run_id = line.api.trigger("tideline_repair", {"tables": ["public.nosuch"]})
        assert line.api.wait("tideline_repair", run_id, timeout_s=RUN_TIMEOUT_S) == "failed"
    finally:
        line.worker.replace_dump(line.source.dump)
    reported = "the worker says refused: public.nosuch is not captured; see tideline status"
    until(lambda: reported in line.api.log("tideline_repair", run_id, "ask"))
    log = until(lambda: line.api.log("tideline_repair", run_id, "ask"))
    assert line.settings.control.url.get_secret_value() not in log
    tasks = until(lambda: line.api.tasks("tideline_repair", run_id))
    assert tasks["ask"] == "failed"
    assert tasks["merge"] == "upstream_failed"


@pytest.mark.long
def test_a_scheduler_and_triggerer_killed_while_a_dump_runs(line: Line) -> None:
    line.worker.delayed.set()
    # No table, so that nothing is to be merged: what is looked at here is the wait.
    line.worker.replace_dump(lambda request: Answer(request.request_id, RequestState.DONE))
    try:
        asked = len(line.worker.requests)
        run_id = line.api.trigger("tideline_repair", {"tables": [TABLE]})
        until(lambda: len(line.worker.requests) == asked + 1)
        until(lambda: line.api.tasks("tideline_repair", run_id)["ask"] == WAITING)
        for component in ("scheduler", "triggerer"):
            line.airflow.kill(component)
            line.airflow.restart_component(component)
        line.worker.delayed.clear()
        line.succeeds("tideline_repair", run_id)
    finally:
        line.worker.delayed.clear()
        line.worker.replace_dump(line.source.dump)
    assert len(line.worker.requests) == asked + 1
    tasks = until(lambda: line.api.tasks("tideline_repair", run_id))
    assert tasks == {"ask": "success", "merge": "skipped"}


def metadata(postgres: PostgresServer) -> str:
    """An empty database for Airflow's metadata."""
    connection = psycopg2.connect(postgres.dsn())
    connection.autocommit = True
    name = f"airflow_{time.time_ns()}"
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    finally:
        connection.close()
    return postgres.dsn(name)


T = TypeVar("T")


def until(look: Callable[[], T], timeout_s: float = 240.0) -> T:
    """What ``look`` finds, once it finds something. An API server that is too busy to answer is
    asked again."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            found = look()
        except Unavailable as error:
            assert time.monotonic() < end, error
        else:
            if found:
                return found
            assert time.monotonic() < end, "it never came true"
        time.sleep(0.1)
