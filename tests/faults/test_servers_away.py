"""Servers that crash, cut connections, refuse or forget: the worker goes on, or says why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.support.checks import check_equal, check_history
from tests.support.workload import SCHEMA, TABLES, Workload

TIDELINE = Path(sys.executable).parent / "tideline"
CANARY = "canary-5afe"
VERSIONED = ("public.accounts", "public.orders", "public.pairs")
SLOW = {"chunk_rows": 50, "delay_ms": 1_000}
"""The first dump takes half a minute at least, until it is hurried."""


class TestUnderTraffic:
    """The worker's session ends and the next one goes on, dump included, in the same process."""

    def test_postgres_is_killed_and_restarted(
        self, own_postgres: PostgresServer, own_database: Database, pipeline_of: PipelineFactory
    ) -> None:
        own_database.run(*SCHEMA)
        shop = pipeline_of(own_database, capture=SLOW)
        with Workload(own_database.dsn, seed=41, pause_s=0.01) as traffic:
            worker = shop.start()
            in_a_dump(shop)
            own_postgres.kill()
            worker.wait_output("it starts again")
            own_postgres.start()
            worker.wait_point("reading", 2)
            traffic.wait_for(100)
            own_postgres.restart()
            worker.wait_point("reading", 3)
            traffic.wait_for(100)
        assert traffic.counts["reconnects"] > 0
        finish(shop, worker)

    def test_connections_are_cut_during_a_dump(
        self, database: Database, pipeline_of: PipelineFactory
    ) -> None:
        database.run(*SCHEMA)
        shop = pipeline_of(database, capture=SLOW)
        name = f"tideline {shop.settings.pipeline}"
        with Workload(database.dsn, seed=42, pause_s=0.01) as traffic:
            worker = shop.start()
            for cut, role in enumerate(("", " chunks", " watermarks"), start=1):
                in_a_dump(shop)
                query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                ended = database.rows(f"{query} WHERE application_name = '{name}{role}'")
                assert set(ended) == {(True,)}, f"no connection {name}{role}"
                worker.wait_point("reading", cut + 1)
            traffic.wait_for(100)
        finish(shop, worker)


def in_a_dump(shop: Pipeline[Database]) -> None:
    """Return while a dump is open that has got somewhere since the session began."""

    def chunks() -> int:
        return sum(dump.chunks for item in shop.state().requests for dump in item.dumps)

    before = chunks()
    shop.wait_state("a dump goes on", lambda state: chunks() > before)
    assert shop.state().requests, "no dump is open"


def finish(shop: Pipeline[Database], worker: WorkerProcess) -> None:
    """A clean stop, and everything is there, once, written by that worker alone."""
    shop.hurry()
    worker.terminate()
    writers = {manifest.writer for manifest in shop.manifests()}
    assert len(writers) == 1
    shop.drain()
    captured = check_equal(shop.settings, shop.database, TABLES)
    check_history(captured, ledger="public.ledger", versioned=VERSIONED)


class TestRefused:
    """``tideline capture`` itself: an exit code for scripts, one clear text, and no secret."""

    @pytest.fixture
    def items(self, database: Database) -> Database:
        database.run(
            "CREATE TABLE items (id int PRIMARY KEY, v text)",
            "INSERT INTO items SELECT g, 'v' FROM generate_series(1, 50) g",
        )
        return database

    def test_a_store_that_cannot_be_written(
        self, items: Database, pipeline_of: PipelineFactory, tmp_path: Path
    ) -> None:
        (tmp_path / "taken").write_text("a file where the directory should be")
        config = tmp_path / "tideline.toml"
        good = pipeline_of(items)
        text = config.read_text().replace(good.settings.store.url, f"{tmp_path.as_uri()}/taken/x")
        config.write_text(text)
        reported = capture(config, code=2)
        assert "taken" in reported
        assert "hint: " in reported
        assert slots(items) == []

    def test_a_wrong_password_of_the_source(
        self, items: Database, postgres: PostgresServer, pipeline_of: PipelineFactory
    ) -> None:
        dsn = postgres.dsn(items.name, password=CANARY)
        shop = pipeline_of(items, source={"url": dsn})
        reported = capture(shop.config, code=2)
        assert "password authentication failed" in reported
        assert "TIDELINE_SOURCE__PASSWORD" in reported
        assert shop.tail() is None

    def test_a_wrong_password_of_redis(
        self, items: Database, pipeline_of: PipelineFactory, valkey: ValkeyServer
    ) -> None:
        """Redis takes no part in what is durable: all is captured, and the output says why."""
        port = urlsplit(valkey.url()).port
        shop = pipeline_of(items, control={"url": f"redis://:{CANARY}@127.0.0.1:{port}/0"})
        reported = capture(shop.config, "--until-idle", str(IDLE_S), code=0)
        assert "redis refuses the login of control.url" in reported
        assert len(check_equal(shop.settings, items, ["public.items"]).table("public.items")) == 50

    def test_a_slot_that_was_recreated(self, items: Database, pipeline_of: PipelineFactory) -> None:
        """Changes between the two slots are in no log that anyone will get to read."""
        shop = pipeline_of(items)
        shop.drain()
        before, (slot,) = shop.manifest(), slots(items)
        used = "SELECT FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        poll("nobody reads it", lambda: not items.rows(f"{used} AND slot_name = '{slot}'"))
        items.run(
            f"SELECT pg_drop_replication_slot('{slot}')",
            "UPDATE items SET v = 'lost' WHERE id = 7",
            f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        )
        reported = capture(shop.config, code=4)
        assert slot in reported
        assert "not the log it was" in reported
        assert "start a new pipeline under another name" in reported
        assert shop.manifest().last_seq == before.last_seq


def capture(config: Path, *words: str, code: int) -> str:
    """All that ``tideline capture`` prints; nothing of it, and no file, holds the secret."""
    done = subprocess.run(
        [str(TIDELINE), "capture", "--config", str(config), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    reported = done.stdout + done.stderr
    assert done.returncode == code, reported
    assert CANARY not in reported
    assert "Traceback" not in reported
    for path in config.parent.rglob("*"):
        assert path == config or not path.is_file() or CANARY.encode() not in path.read_bytes()
    return reported


def slots(database: Database) -> list[str]:
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return [str(name) for (name,) in database.rows(query)]
