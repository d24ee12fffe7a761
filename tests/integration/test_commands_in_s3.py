"""A pipeline whose chain and tables are in S3, from its first check to its removal: commands on
real servers. What starts a Spark of its own is in `test_spark_in_s3`; here the run's is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from devtools.demo.compare import compare
from devtools.services.s3 import S3Server
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.object_storage import place_in
from tests.fixtures.services import Database
from tideline.contract.open_state import OpenState
from tideline.planner.garbage import Fate
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline_console import garbage, maintain, merge, rebuild, verify
from tideline_console.app import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
Command = Callable[..., str]


@pytest.fixture
def shop(
    database: Database,
    pipeline_of: PipelineFactory,
    s3: S3Server,
    spark_on_s3: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Pipeline[Database]:
    """Its secret access key is in a file."""

    @contextmanager
    def session(settings: Settings, what: str) -> Iterator[SparkSession]:
        yield spark_on_s3

    for command in (maintain, merge, rebuild, verify):
        monkeypatch.setattr(command, "spark_session", session)
    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, 20) n",
    )
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(s3.secret_access_key)
    place = place_in(s3)
    keys = {name: value for name, value in s3.access.items() if name != "secret_access_key"}
    return pipeline_of(
        database,
        store={"url": f"{place.url}/store", **keys, "secret_access_key_file": str(secret)},
        warehouse={"url": f"{place.url}/warehouse"},
        maintain={"small_files_min": 2},
    )


@pytest.fixture
def command(shop: Pipeline[Database], s3: S3Server) -> Command:
    """Runs a command, which is to end with 0; what it prints, with no secret in it."""

    def run(*words: str) -> str:
        line = [*words, "--config", str(shop.config)]
        done = CliRunner().invoke(app, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert s3.secret_access_key not in done.output
        return done.stdout

    return run


def equal(shop: Pipeline[Database]) -> bool:
    """Whether the warehouse has what the source has."""
    return compare(shop.database.dsn, shop.settings.warehouse_storage, [ORDERS]).equal


def captured(shop: Pipeline[Database], *statements: str) -> None:
    """Change the source; return once the chain has it."""
    before = shop.manifest().last_seq
    shop.database.run(*statements)
    shop.wait_state("the change is captured", lambda state: shop.manifest().last_seq > before)


def keys(shop: Pipeline[Database]) -> set[str]:
    """What lies in the store and in the warehouse."""
    places = (shop.settings.store, shop.settings.warehouse_store())
    return {f"{one.section} {key}" for one in places for key in open_store(one).list("")}


@pytest.mark.timeout(600)
def test_commands_from_the_first_check_to_the_removal(
    shop: Pipeline[Database], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "capture may start" in command("doctor")
    worker = shop.start()
    shop.wait_state("the table is dumped", lambda state: ORDERS in state.tables and dumped(state))
    planned = json.loads(command("plan", "--json"))
    assert [one["table"] for one in planned["tables"]] == [ORDERS]
    command("merge")
    assert equal(shop)
    captured(shop, "UPDATE orders SET note = 'changed' WHERE id <= 5")
    command("merge")
    assert equal(shop)
    [status] = json.loads(command("status", "--json"))["tables"]
    assert (status["table"], status["state"]) == (ORDERS, "active")

    assert "equal" in command("verify", ORDERS)
    command("maintain", ORDERS)
    assert equal(shop)
    command("rebuild", ORDERS, "--mode", "current")
    assert equal(shop)
    worker.terminate()

    # Nothing in S3 can be made older than it is.
    later = datetime.now(UTC) + timedelta(days=100)
    monkeypatch.setattr(garbage, "datetime", SimpleNamespace(now=lambda zone: later))
    before = keys(shop)
    assert Fate.VERIFIED.value in command("garbage", "--dry-run")
    assert keys(shop) == before
    command("garbage")
    removed = {key.split("/")[1] for key in before - keys(shop)}
    assert removed == {"checks", "maintenance", "runs"}
    assert equal(shop)

    listed = command("delete-pipeline", "--chain", "--targets")
    assert "nothing is removed yet" in listed and equal(shop)
    assert "removed chain" in command("delete-pipeline", "--chain", "--targets", "--yes")
    assert keys(shop) == set()


def dumped(state: OpenState) -> bool:
    """Whether the first dump of the table has ended."""
    return state.tables[ORDERS].complete_seq is not None and not state.requests
