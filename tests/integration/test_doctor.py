"""``tideline doctor`` as a process: exit codes, fixes, and no secret in any output."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tideline_console.doctor
from devtools.services.ports import free_port
from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import PipelineFactory
from tests.fixtures.services import Database
from tests.fixtures.settings import ConfigFactory
from tideline.contract.open_state import TableCondition
from tideline.settings import Settings
from tideline_capture.sources.finding import nothing_chosen
from tideline_console.app import app

TIDELINE = Path(sys.executable).parent / "tideline"
CANARY = "canary-3b7e"


@dataclass(frozen=True)
class Outcome:
    returncode: int
    stdout: str


def doctor(config: Path, **environment: str) -> Outcome:
    """The command in this process; `test_as_a_process` shows that the program does the same."""
    words = ["doctor", "--config", str(config)]
    done = CliRunner().invoke(app, words, env=environment, catch_exceptions=False)
    assert CANARY not in done.output
    return Outcome(done.exit_code, done.stdout)


@pytest.fixture
def shop(database: Database) -> Database:
    database.run("CREATE TABLE orders (id int PRIMARY KEY)")
    return database


def test_capture_may_start(shop: Database, config_for: ConfigFactory) -> None:
    done = doctor(config_for(shop))
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("capture may start\n")
    for name in ("version", "tables", "store", "control", "warehouse", "java"):
        assert f"ok      {name}: " in done.stdout


def test_a_finding_and_its_fix(database: Database, config_for: ConfigFactory) -> None:
    database.run("CREATE TABLE orders (id int PRIMARY KEY, _tl_seq int)")
    config = config_for(database)
    done = doctor(config)
    assert done.returncode == 2
    (fix,) = [line for line in done.stdout.splitlines() if "RENAME COLUMN" in line]
    database.run(fix.partition("fix: ")[2].replace("…", "seq"))
    assert doctor(config).returncode == 0


def test_the_fix_of_a_table_whose_name_is_not_seen(
    database: Database, config_for: ConfigFactory
) -> None:
    """What is printed is a statement that the server takes."""
    database.run('CREATE TABLE "a\n\x1b[2J\\""\U000e0101b" (id int)')
    config = config_for(database)
    (fix,) = [line for line in doctor(config).stdout.splitlines() if "ADD PRIMARY KEY" in line]
    database.run(fix.partition("fix: ")[2].partition(" --")[0].replace("…", "id"))
    assert doctor(config).returncode == 0


def test_a_worker_that_confirms_meanwhile(
    shop: Database, pipeline_of: PipelineFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two questions of doctor's the worker appends, and confirms what it has appended: the
    slot is not ahead of the chain."""
    pipeline = pipeline_of(shop)

    def capture() -> None:
        shop.run("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
        worker = pipeline.start(until_idle_s=0.5)
        assert worker.wait() == 0, worker.output()[-3_000:]

    capture()
    tail = tideline_console.doctor._tail
    asked = list[object]()

    def and_then(settings: Settings) -> object:
        asked.append(found := tail(settings))
        capture()
        return found

    monkeypatch.setattr(tideline_console.doctor, "_tail", and_then)
    done = doctor(pipeline.config)
    assert asked
    assert done.returncode == 0, done.stdout
    assert "ok      slot: " in done.stdout


def test_an_empty_database_may_be_captured(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    """Doctor says so, the worker does it, in the same words; what comes later is captured."""
    pipeline = pipeline_of(database)
    done = doctor(pipeline.config)
    assert done.returncode == 0, done.stdout
    assert f"WARNING tables: {nothing_chosen().message}" in done.stdout
    assert "set source.tables" not in done.stdout, "there is nothing to choose"
    worker = pipeline.start()
    worker.wait_output(nothing_chosen().message)
    database.run("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    pipeline.finish(worker)
    assert pipeline.table("public.orders").condition is TableCondition.ACTIVE
    assert pipeline.rows_of("r") + pipeline.rows_of("c") >= 1


@pytest.fixture
def capture_role(postgres: PostgresServer, shop: Database) -> Iterator[str]:
    name = f"capture_{uuid.uuid4().hex[:6]}"
    shop.run(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{CANARY}'")
    yield name
    shop.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_a_secret_never_shows(
    shop: Database, postgres: PostgresServer, capture_role: str, config_for: ConfigFactory
) -> None:
    dsn = postgres.dsn(shop.name, user=capture_role, password=CANARY)
    done = doctor(config_for(shop, source={"url": dsn}))
    assert done.returncode == 2
    assert f'GRANT SELECT ON TABLE "public"."orders" TO "{capture_role}";' in done.stdout


def test_a_wrong_password(
    shop: Database, postgres: PostgresServer, config_for: ConfigFactory
) -> None:
    config = config_for(shop, source={"url": postgres.dsn(shop.name, password=CANARY)})
    done = doctor(config)
    assert done.returncode == 2
    assert 'password authentication failed for user "postgres"' in done.stdout
    assert "TIDELINE_SOURCE__PASSWORD" in done.stdout
    assert "ok      store" in done.stdout
    right = doctor(config, TIDELINE_SOURCE__PASSWORD=postgres.password)
    assert right.returncode == 0, right.stdout


def test_as_a_process(shop: Database, postgres: PostgresServer, config_for: ConfigFactory) -> None:
    dsn = postgres.dsn(shop.name, password=CANARY)
    done = subprocess.run(
        [str(TIDELINE), "doctor", "--config", str(config_for(shop, source={"url": dsn}))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "ERROR   source: the source refuses us" in done.stdout
    assert CANARY not in done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://postgres:{CANARY}@127.0.0.1:1/shop",
        f"postgresql://postgres:{CANARY}@no.such.host.invalid/shop",
        f"postgresql://postgres:x@{CANARY}@127.0.0.1:1/shop",
        f"postgresql://postgres@127.0.0.1:1/shop?{CANARY}=1",
    ],
)
def test_a_source_that_cannot_be_reached(
    shop: Database, url: str, config_for: ConfigFactory
) -> None:
    done = doctor(config_for(shop, source={"url": url}))
    assert done.returncode == 2
    assert "ERROR   source: " in done.stdout
    assert "ok      control: " in done.stdout


def test_an_unknown_database(
    shop: Database, postgres: PostgresServer, config_for: ConfigFactory
) -> None:
    done = doctor(config_for(shop, source={"url": postgres.dsn("no_such_db")}))
    assert done.returncode == 2
    assert 'database "no_such_db" does not exist' in done.stdout


@pytest.mark.parametrize("port", ["right", "free"])
def test_without_the_queue_capture_may_start(
    port: str, shop: Database, valkey: ValkeyServer, pipeline_of: PipelineFactory
) -> None:
    """Doctor says so, the worker does it: the first dump needs nobody's request."""
    number = valkey.port if port == "right" else free_port()
    shop.run("INSERT INTO orders VALUES (1)")
    pipeline = pipeline_of(shop, control={"url": f"redis://:{CANARY}@127.0.0.1:{number}/0"})
    done = doctor(pipeline.config)
    assert done.returncode == 0, done.stdout
    expected = "refuses the login" if port == "right" else "cannot be reached"
    assert f"WARNING control: redis {expected}" in done.stdout
    assert "capture runs without it" in done.stdout
    pipeline.drain()
    assert pipeline.table("public.orders").condition is TableCondition.ACTIVE
    assert pipeline.rows_of("r") == 1


@pytest.mark.parametrize("section", ["store", "warehouse"])
def test_a_place_that_cannot_be_written(
    section: str, shop: Database, tmp_path: Path, config_for: ConfigFactory
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    done = doctor(config_for(shop, **{section: {"url": (blocker / "in").as_uri()}}))
    assert done.returncode == 2
    assert f"ERROR   {section}: " in done.stdout


def test_no_java_is_a_warning(shop: Database, tmp_path: Path, config_for: ConfigFactory) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = doctor(
        config_for(shop), PATH=str(empty), JAVA_HOME=str(empty), TIDELINE_CACHE=str(empty)
    )
    assert done.returncode == 0, done.stdout
    assert "WARNING java: no Java 17" in done.stdout
