"""The worker's container of docker-compose.yml as a plain process: the secrets that it gets
suffice, nobody sees them, and its check tells of this very process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.services.ports import free_port
from devtools.services.postgres import SUPERUSER, PostgresServer, binaries
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.containers import ROOT, Containers
from tests.fixtures.services import Database
from tests.fixtures.settings import as_toml


def prepare_source(
    postgres: PostgresServer, database: Database, role: str, folder: Path, password: str
) -> None:
    """What the image of `source` does with our script, by psql, with another name of the role."""
    (folder / "source_password").write_text(password)
    text = (ROOT / "scripts" / "grant-capture-postgres.sh").read_text()
    text = re.sub(r"\btideline\b(?=[ ;])", role, text).replace("/run/secrets", str(folder))
    environment = {
        "PATH": f"{binaries(None)}:{os.environ.get('PATH', os.defpath)}",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(postgres.port),
        "PGPASSWORD": postgres.password,
        "POSTGRES_USER": SUPERUSER,
        "POSTGRES_DB": database.name,
    }
    done = subprocess.run(
        ["sh", "-e", "-c", text], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def containers(
    tmp_path: Path,
    pipeline: str,
    postgres: PostgresServer,
    database: Database,
    valkey: ValkeyServer,
) -> Iterator[Containers]:
    config = tmp_path / "tideline.toml"
    settings = {
        "pipeline": pipeline,
        "source": {"publication": "tideline_shop"},
        "capture": {"mark_timeout_s": 20.0},
    }
    config.write_text(as_toml(settings))
    password = re.search(":([^@:]+)@", valkey.url())
    assert password is not None
    # Every test's database has the role, so it is made with a name of its own.
    role = f"tideline_{pipeline.lower().replace('-', '_')}"
    given = {"source_password": "role's own", "valkey_password": password[1]}
    prepare_source(postgres, database, role, tmp_path, given["source_password"])
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    port = free_port()
    made = Containers(
        tmp_path,
        {
            "redis://valkey:6379/0": f"redis://127.0.0.1:{valkey.port}/0",
            "tideline@source:5432/shop": f"{role}@127.0.0.1:{postgres.port}/{database.name}",
            "/etc/tideline/tideline.toml": str(config),
            "/var/lib/tideline": str(tmp_path / "tideline"),
            "127.0.0.1:9464": f"127.0.0.1:{port}",
            "0.0.0.0": "127.0.0.1",
        },
        given,
        {"TIDELINE_CAPTURE__METRICS_PORT": str(port)},
    )
    yield made
    made.stop()


def ready(port: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError) as error:
        return str(error)


def test_it_captures_on_what_its_container_gets(containers: Containers) -> None:
    assert not containers.healthy("worker"), "nobody is there"
    worker = containers.start("worker")
    port = containers.more["TIDELINE_CAPTURE__METRICS_PORT"]
    try:
        poll("it reads the log", lambda: ready(port) == "ok: active, reads the log\n")
        # Not at the first look: the check's own time-out may pass on a busy machine.
        poll("it is healthy", lambda: containers.healthy("worker"))
    except AssertionError as error:
        raise AssertionError(f"{containers.said}\n{worker.log_tail()}") from error
    seen = containers.shown("worker")
    assert "TIDELINE_SOURCE__PASSWORD_FILE" in seen
    assert not [one for one in containers.given.values() if one in seen]
    worker.send(signal.SIGSTOP)
    assert not containers.healthy("worker"), "it is frozen"
    worker.send(signal.SIGCONT)
    poll("it is healthy again", lambda: containers.healthy("worker"))
    assert worker.stop() == 0
    assert not [one for one in containers.given.values() if one in worker.log_tail()]


def test_without_its_password_it_says_which_file_is_missing(containers: Containers) -> None:
    environment = containers.environment("worker")
    Path(environment["TIDELINE_SOURCE__PASSWORD_FILE"]).unlink()
    del containers.services["worker"]["secrets"][0]
    worker = containers.start("worker")
    assert worker.wait(90) != 0
    assert "source.password_file cannot be read" in worker.log_tail()
