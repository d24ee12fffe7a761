"""The secrets of Iceberg's catalogs, from a file: `tideline merge` with event logs on shows them
nowhere, and neither does an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from devtools.services.iceberg_rest import IcebergRestServer
from tests.fixtures.parts import History, Shaped
from tests.fixtures.services import Database
from tests.fixtures.settings import as_toml
from tests.spark.orders import SCHEMA, order
from tests.support.command_lines import CommandLines
from tests.support.spark_events import SparkEvents
from tideline.settings import load_settings
from tideline.warehouse.iceberg.catalog import iceberg_settings

CANARY = "canary-7d1c"
TIDELINE = Path(sys.executable).parent / "tideline"


def in_database(database: Database) -> dict[str, Any]:
    """A catalog in a database, whose user has the canary as password."""
    user = f"user_{database.name}"
    database.run(
        f"CREATE ROLE {user} LOGIN PASSWORD '{CANARY}'", f"GRANT CREATE ON SCHEMA public TO {user}"
    )
    parts = urlsplit(database.dsn)
    url = f"postgresql://{parts.hostname}:{parts.port}{parts.path}?sslmode=disable"
    return {"catalog": "jdbc", "url": url, "user": user}


@pytest.fixture(params=["jdbc", "rest", "token"])
def catalog(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of a catalog but for its secret."""
    if request.param == "jdbc":
        return in_database(request.getfixturevalue("database"))
    server: IcebergRestServer = request.getfixturevalue("iceberg_rest")
    user = {} if request.param == "token" else {"user": "client"}
    return {"catalog": "rest", "url": server.url, "namespace": f"of_{request.param}", **user}


def test_a_secret_is_shown_nowhere(tmp_path: Path, catalog: dict[str, Any]) -> None:
    history = History(tmp_path)
    history.commit(Shaped(SCHEMA))
    history.commit(order("c", 1, "new"))
    secret = tmp_path / "secret"
    secret.write_text(f"{CANARY}\n")
    config = tmp_path / "tideline.toml"
    given = history.settings
    values = {
        "pipeline": given.pipeline,
        "source": {"url": given.source.url.get_secret_value()},
        "store": {"url": given.store.url},
        "warehouse": {
            "url": given.warehouse.url,
            "format": "iceberg",
            "iceberg": {**catalog, "password_file": str(secret)},
        },
    }
    config.write_text(as_toml(values))
    settings = load_settings(config)
    assert CANARY in str(iceberg_settings(settings.warehouse)), "there is nothing to keep"
    events, lines = SparkEvents(tmp_path / "spark"), CommandLines([CANARY], ["SparkSubmit"])

    def run(*arguments: str) -> str:
        with lines.watched():
            done = subprocess.run(
                [TIDELINE, *arguments, "--config", config],
                env={**os.environ, "SPARK_CONF_DIR": str(events.configuration)},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        return f"{done.returncode} {done.stdout}{done.stderr}"

    merged = run("merge")
    assert merged.startswith("0 ") and "applied" in merged, merged
    [application] = events.ended()
    assert "spark.sql.catalog.tideline" in application.text
    stored = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(stored) > 4
    assert lines.lines, "no Spark was seen"
    assert not lines.telling
    for text in (merged, application.text, *map(str, stored), repr(settings)):
        assert CANARY not in text


def test_errors_of_both_clients_do_not_hold_it(tmp_path: Path, database: Database) -> None:
    """Of a password that is wrong; `tideline plan` reads by pyiceberg."""
    history = History(tmp_path)
    history.commit(Shaped(SCHEMA))
    history.commit(order("c", 1, "new"))
    catalog = in_database(database) | {"password": f"{CANARY}-wrong"}
    values = {
        "pipeline": "shop",
        "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
        "store": {"url": history.settings.store.url},
        "warehouse": {"url": tmp_path.as_uri(), "format": "iceberg", "iceberg": catalog},
    }
    config = tmp_path / "tideline.toml"
    config.touch(mode=0o600)
    config.write_text(as_toml(values))
    done = subprocess.run(
        [TIDELINE, "plan", "--config", config],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 3, done.stderr
    assert "cannot be read" in done.stderr and CANARY not in done.stdout + done.stderr
