"""Airflow's containers of docker-compose.yml as plain processes: each with the environment and the
secrets that are its own, and with nothing else."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from devtools.services.airflow_api import AirflowApi
from devtools.services.ports import free_port
from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_context import WAITING
from tests.airflow.test_airflow_scheduler import RUN_TIMEOUT_S, until
from tests.fixtures.containers import ROOT, Containers
from tests.fixtures.settings import as_toml
from tideline.contract.request import Answer, RequestState
from tideline.settings import make_settings

pytestmark = [pytest.mark.timeout(1_200), pytest.mark.long]

COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
PATIENT = {
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "TIDELINE_MERGE_SCHEDULE": "",
}
"""For a small and busy machine; and merges are not what is looked at here."""


@pytest.fixture
def deployment(tmp_path: Path, valkey: ValkeyServer) -> Iterator[tuple[Containers, StubWorker]]:
    config = tmp_path / "tideline.toml"
    config.write_text(as_toml({"pipeline": "containers"}))
    password = re.search(":([^@:]+)@", valkey.url())
    assert password is not None
    given = {
        "valkey_password": password[1],
        "airflow_database_password": secrets.token_hex(8),
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "airflow_secret_key": secrets.token_hex(20),
        "airflow_jwt_secret": secrets.token_hex(40),
    }
    with ExitStack() as stack:
        postgres = stack.enter_context(
            PostgresServer(tmp_path / "postgres", settings=NOT_DURABLE, name="airflow-db")
        )
        make_database(postgres, given["airflow_database_password"])
        nobody = stack.enter_context(NoSource())
        ui, health = free_port(), free_port()
        made = Containers(
            tmp_path,
            {
                "airflow-db:5432": f"127.0.0.1:{postgres.port}",
                "airflow-api-server:8080": f"127.0.0.1:{ui}",
                "127.0.0.1:8080": f"127.0.0.1:{ui}",
                "127.0.0.1:8974": f"127.0.0.1:{health}",
                "0.0.0.0": "127.0.0.1",
                "redis://valkey:6379/0": f"redis://127.0.0.1:{valkey.port}/0",
                "postgresql://tideline@source:5432/shop?sslmode=disable": nobody.url,
                "/opt/tideline/dags": str(ROOT / "dags"),
                "/opt/tideline/plugins": str(ROOT / "plugins"),
                "/etc/tideline/tideline.toml": str(config),
                "/var/lib/airflow": str(tmp_path / "airflow"),
                "/var/lib/tideline": str(tmp_path / "tideline"),
            },
            given,
            {
                **PATIENT,
                "AIRFLOW__API__PORT": str(ui),
                "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_SERVER_PORT": str(health),
            },
        )
        for name in ("airflow", "airflow-users"):
            (tmp_path / name).mkdir()
        stack.callback(made.stop)
        worker = stack.enter_context(StubWorker(settings_of(valkey, tmp_path)))
        yield made, worker
        assert nobody.visitors() == 0


def settings_of(valkey: ValkeyServer, folder: Path) -> Any:
    return make_settings(
        {
            "pipeline": "containers",
            "source": {"url": "postgresql://tideline@db/shop"},
            "store": {"url": (folder / "tideline" / "store").as_uri()},  # as the containers have it
            "control": {"url": valkey.url()},
            "warehouse": {"url": (folder / "warehouse").as_uri()},
        }
    )


def make_database(postgres: PostgresServer, password: str) -> None:
    connection = psycopg2.connect(postgres.dsn())
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute("CREATE ROLE airflow LOGIN PASSWORD %s", (password,))
            cursor.execute("CREATE DATABASE airflow OWNER airflow")
    finally:
        connection.close()


def test_each_component_works_on_what_its_container_gets(
    deployment: tuple[Containers, StubWorker],
) -> None:
    made, worker = deployment
    migrate = made.start("airflow-migrate")
    assert migrate.wait(600) == 0, migrate.log_tail()
    for name in COMPONENTS:
        for other in made.awaited(f"airflow-{name}"):
            healthy(made, other)
        made.start(f"airflow-{name}")
    for name in COMPONENTS:
        healthy(made, f"airflow-{name}")
    api = logged_in(made)
    until(lambda: "tideline_control" in api.dags() and "tideline_repair" in api.dags())
    assert api.import_errors() == {}
    form = api.get("dags/tideline_control/details")["params"]["requests"]["schema"][
        "description_md"
    ]
    assert "could not be asked" not in form, "the DAG processor cannot ask what runs"
    # A task in the scheduler's container: it has a token of the API server's and asks the queue.
    run_id = api.trigger("tideline_control", {"action": "pause", "all": True})
    assert api.wait("tideline_control", run_id, timeout_s=RUN_TIMEOUT_S) == "success"
    assert len(worker.commands) == 1
    # One that waits in the triggerer's, whose arguments are encrypted.
    worker.delayed.set()
    worker.replace_dump(lambda request: Answer(request.request_id, RequestState.DONE))
    run_id = api.trigger("tideline_repair", {"tables": ["public.orders"]})
    until(lambda: api.tasks("tideline_repair", run_id)["ask"] == WAITING)
    worker.delayed.clear()
    assert api.wait("tideline_repair", run_id, timeout_s=RUN_TIMEOUT_S) == "success"
    assert api.tasks("tideline_repair", run_id)["ask"] == "success"
    log = (made.folder / "airflow-scheduler.log").read_text()
    assert "Workload execution failed" not in log, "a task found no API server"
    hidden = set(made.given.values())
    for name in COMPONENTS:
        seen = made.shown(f"airflow-{name}")
        assert not [one for one in hidden if one in seen], f"a secret is seen in {name}"
    for path in [*made.folder.glob("*.log"), *(made.folder / "airflow" / "logs").rglob("*.log")]:
        text = path.read_text(errors="replace")
        assert not [one for one in hidden if one in text], f"a secret in {path.name}"


def healthy(made: Containers, name: str) -> None:
    """Wait until the container's own check says so."""
    until(lambda: made.healthy(name))


def logged_in(made: Containers) -> AirflowApi:
    users = until(
        lambda: json.loads((made.folder / "airflow-users" / "passwords.json").read_text())
    )
    url = made.environment("airflow-api-server")["AIRFLOW__API__BASE_URL"]
    return AirflowApi(url, user="admin", password=users["admin"])
