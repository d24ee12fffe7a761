"""The worker's container of docker-compose.yml as a plain process: the secrets that it gets
suffice, nobody sees them, and its check tells of this very process."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.services.ports import free_port
from console.services.postgres import PostgresServer
from console.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.containers import Containers
from tests.fixtures.services import Database
from tests.fixtures.settings import as_toml


@pytest.fixture
def containers(
    tmp_path: Path,
    pipeline: str,
    postgres: PostgresServer,
    database: Database,
    valkey: ValkeyServer,
) -> Iterator[Containers]:
    config = tmp_path / "tideline.toml"
    config.write_text(as_toml({"pipeline": pipeline, "capture": {"mark_timeout_s": 20.0}}))
    password = re.search(":([^@:]+)@", valkey.url())
    assert password is not None
    # The role that the image of `source` makes is a superuser, too.
    given = {"source_password": postgres.password, "valkey_password": password[1]}
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    port = free_port()
    made = Containers(
        tmp_path,
        {
            "redis://valkey:6379/0": f"redis://127.0.0.1:{valkey.port}/0",
            "tideline@source:5432/shop": f"postgres@127.0.0.1:{postgres.port}/{database.name}",
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
    poll("it reads the log", lambda: ready(port) == "ok: active, reads the log\n")
    assert containers.healthy("worker")
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
