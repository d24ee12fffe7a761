"""Each DAG on a real scheduler with chain and tables in S3. The secret key and the queue's password
are in the environment alone: every run succeeds, and nothing that Airflow keeps has a secret."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from psycopg2 import sql

from devtools.services.postgres import PostgresServer
from devtools.services.s3 import S3Server
from devtools.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import TRIGGERED, change, trigger
from tests.airflow.whole_line import WholeLine, whole_line
from tests.fixtures.object_storage import place_in, require_s3
from tideline.settings import Settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_400)]


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
    s3: S3Server,
) -> Iterator[WholeLine]:
    require_s3()
    folder = tmp_path_factory.mktemp("dags")
    with whole_line(folder, postgres, valkey_server, place=place_in(s3)) as made:
        yield made


CHANGED = ("merge", "repair", "backfill")
"""Those before which the source changes: the others' jobs then have less to merge first."""


@pytest.mark.parametrize("name", TRIGGERED)
def test_it_succeeds(line: WholeLine, name: str) -> None:
    drawn = random.Random(name)
    if name in CHANGED:
        change(line, drawn)
    run_id = trigger(line, name, drawn)
    line.succeeds(f"tideline_{name}", run_id)
    if name == "verify":
        reported = line.api.xcom("tideline_verify", run_id, "report")
        assert {one["proof"] for one in reported.values()} == {"equal"}, reported


def test_source_and_warehouse_are_equal_then(line: WholeLine) -> None:
    line.expect_equal()


def test_nothing_that_airflow_keeps_has_a_secret(line: WholeLine) -> None:
    """Logs of tasks and of its parts; XComs, rendered fields and all else that its database has,
    behind the runs of every DAG."""
    secrets = secrets_of(line.settings)
    assert not [one for one in secrets if one in line.config.read_text()]
    folder = line.airflow.run_folder
    tasks = list((folder / "logs").rglob("attempt=*.log"))
    ran = {name for name in TRIGGERED for one in tasks if f"dag_id=tideline_{name}/" in str(one)}
    assert ran == set(TRIGGERED)
    for log in [*tasks, *folder.rglob("*.log")]:
        text = log.read_text(errors="replace")
        assert not [one for one in secrets if one in text], log
    kept = rows_of(line.airflow.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    assert any("return_value" in row for row in kept["xcom"])
    assert any("tideline_verify" in row for row in kept["rendered_task_instance_fields"])
    for name, rows in kept.items():
        text = "\n".join(rows)
        assert not [s for s in secrets if s in text or s.encode().hex() in text], name


def secrets_of(settings: Settings) -> list[str]:
    """The secret access key, and the password of the queue."""
    key = settings.store.secret()
    password = re.search(":([^@:]+)@", settings.control.url.get_secret_value())
    assert key is not None and password is not None
    return [key, password[1]]


def rows_of(address: str) -> dict[str, list[str]]:
    """The rows of every table of Airflow's database, as text."""
    listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    every = sql.SQL("SELECT t::text FROM {} t")
    with closing(psycopg2.connect(address.replace("+psycopg2", ""))) as connection:
        cursor = connection.cursor()
        cursor.execute(listed)
        names = [name for (name,) in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(every.format(sql.Identifier(name)))
            found[name] = [row for (row,) in cursor.fetchall()]
    return found
