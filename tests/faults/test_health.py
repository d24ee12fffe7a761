"""What ``/healthz`` and ``/readyz`` of real workers say: active, passive, frozen, hanging, and with
the store or the source away."""

from __future__ import annotations

import http.client
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from devtools.services.ports import free_port
from devtools.services.postgres import PostgresServer
from devtools.services.s3 import S3Server
from tests.faults.test_store_away import s3_store
from tests.fixtures.capture import PATIENCE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database, make_database

LIMITS = {"mark_timeout_s": 4.0, "takeover_after_s": 3.0}
"""With those of the store below, a loop may take 8 s, of which a busy machine needs a few."""
STORE = {"retry_s": 2.0, "timeout_s": 2.0}
LIMIT_S = 8.0


class Probe:
    """A worker with a port of its own, asked as an orchestrator asks."""

    def __init__(self, shop: Pipeline[Any], folder: Path) -> None:
        self.port = free_port()
        config = folder / f"worker-{self.port}.toml"
        section = '["capture"]\n'
        head, found, rest = shop.config.read_text().partition(section)
        assert found
        config.write_text(f"{head}{section}metrics_port = {self.port}\n{rest}")
        self.worker: WorkerProcess = shop.start(config=config)

    def ask(self, path: str, timeout_s: float = PATIENCE_S) -> tuple[int, str]:
        """Status and text; 0 when nobody answers in time."""
        address = f"http://127.0.0.1:{self.port}{path}"
        try:
            try:
                with urllib.request.urlopen(address, timeout=timeout_s) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()
        # It may end while it answers.
        except (OSError, http.client.HTTPException) as error:
            return 0, type(error).__name__

    def says(self, path: str, code: int, words: str) -> None:
        """Return once that is the answer."""
        found: list[tuple[int, str]] = []

        def reported() -> bool:
            found[:] = [self.ask(path)]
            return found[0][0] == code and words in found[0][1]

        try:
            poll(f"{path} says {code}, {words!r}", reported)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {found}") from None


ProbeFactory = Callable[[Pipeline[Any]], Probe]


@pytest.fixture
def started(tmp_path: Path) -> ProbeFactory:
    return lambda shop: Probe(shop, tmp_path)


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    return pipeline_of(database, capture=LIMITS, store=STORE)


def test_active_passive_frozen_and_after(shop: Pipeline[Database], started: ProbeFactory) -> None:
    first = started(shop)
    first.says("/readyz", 200, "active, reads the log")
    assert first.ask("/healthz")[0] == 200
    assert "tideline_last_seq" in first.ask("/metrics")[1]
    second = started(shop)
    second.says("/readyz", 200, "passive, saw the chain")
    assert second.ask("/healthz")[0] == 200
    # Each tells of itself: one is frozen, and the other is none the worse for it.
    first.worker.signal(signal.SIGSTOP)
    first.worker.wait_stopped()
    assert first.ask("/healthz", timeout_s=1.0)[0] == 0
    second.says("/readyz", 200, "active, reads the log")
    assert shop.manifest().term == 2
    assert first.ask("/healthz", timeout_s=1.0)[0] == 0
    assert first.ask("/readyz", timeout_s=1.0)[0] == 0
    # Awake again it finds that it is fenced, and does not call itself ready meanwhile.
    first.worker.signal(signal.SIGCONT)
    while not first.worker.ended():
        assert first.ask("/readyz")[0] != 200
    assert first.worker.wait() != 0
    assert first.ask("/healthz")[0] == 0
    shop.finish(second.worker)


@pytest.mark.parametrize("point", ["before-confirm", "between-parts-and-manifest"])
def test_a_loop_that_hangs(
    point: str, shop: Pipeline[Database], started: ProbeFactory, database: Database
) -> None:
    """The log reader's, and the uploader's. The process is there and answers, all the same."""
    probe = started(shop)
    probe.says("/readyz", 200, "active, reads the log")
    database.run("INSERT INTO items VALUES (1)")
    begun = time.monotonic()
    probe.worker.hang_at(point)
    which = "main loop" if point == "before-confirm" else "uploader's loop"
    probe.says("/healthz", 503, f"the {which} has not come round for")
    assert time.monotonic() - begun >= LIMIT_S / 2, "it was judged before it could be known"
    assert f"{LIMIT_S:g} s are allowed" in probe.ask("/healthz")[1]
    assert probe.ask("/readyz")[0] == 503
    assert not probe.worker.ended()
    probe.worker.kill()


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    """The run's S3 server, to be killed; running again behind the test."""
    yield s3
    if s3.running:
        os.kill(s3.pid, signal.SIGCONT)
    s3.start()


def test_the_store_is_away(
    database: Database, server: S3Server, pipeline_of: PipelineFactory, started: ProbeFactory
) -> None:
    """Neither is ready, and both are alive: nobody gains by starting them again."""
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    shop = pipeline_of(database, capture=LIMITS, store={**s3_store(server), **STORE})
    active = started(shop)
    active.says("/readyz", 200, "active, reads the log")
    passive = started(shop)
    passive.says("/readyz", 200, "passive, saw the chain")
    os.kill(server.pid, signal.SIGSTOP)
    active.says("/readyz", 503, "the store has taken nothing for")
    passive.says("/readyz", 503, "the store has not answered for")
    # For longer than a loop may take: waiting for the store is turning.
    since = time.monotonic()
    while time.monotonic() - since < 2 * LIMIT_S:
        for probe in (active, passive):
            code, reported = probe.ask("/healthz")
            assert code == 200, reported
            assert probe.ask("/readyz")[0] == 503
        time.sleep(0.2)
    os.kill(server.pid, signal.SIGCONT)
    probes = (active, passive)
    poll("both are ready", lambda: all(one.ask("/readyz")[0] == 200 for one in probes))


def test_the_source_is_away(
    tmp_path: Path, pipeline_of: PipelineFactory, started: ProbeFactory
) -> None:
    with PostgresServer(tmp_path / "own-postgres") as server:
        database = make_database(server)
        database.run("CREATE TABLE items (id int PRIMARY KEY)")
        shop = pipeline_of(database, capture=LIMITS, store=STORE)
        probe = started(shop)
        probe.says("/readyz", 200, "active, reads the log")
        server.stop()
        probe.says("/readyz", 503, "the source's log is not read")
        code, reported = probe.ask("/healthz")
        assert code == 200, reported
        server.start()
        probe.says("/readyz", 200, "active, reads the log")
        probe.worker.terminate()


def test_waiting_for_a_transaction_of_somebody_else_is_no_hanging(
    shop: Pipeline[Database], started: ProbeFactory, database: Database
) -> None:
    """A slot is made once all transactions have ended that run now, however long that takes."""
    with closing(psycopg2.connect(database.dsn)) as busy, busy.cursor() as cursor:
        cursor.execute("INSERT INTO items VALUES (1)")
        probe = started(shop)
        probe.says("/readyz", 503, "active, but the source's log is not read")
        since = time.monotonic()
        while time.monotonic() - since < 1.5 * LIMIT_S:
            code, reported = probe.ask("/healthz")
            assert code == 200, reported
            assert probe.ask("/readyz")[0] == 503
            time.sleep(0.2)
        busy.commit()
    probe.says("/readyz", 200, "active, reads the log")


def test_a_worker_that_never_gets_to_the_chain_is_not_ready(
    database: Database, server: S3Server, pipeline_of: PipelineFactory, started: ProbeFactory
) -> None:
    """It can be asked from its first moment on, before the store has answered."""
    store = {**s3_store(server), "retry_s": 60.0, "timeout_s": 2.0}
    shop = pipeline_of(database, capture=LIMITS, store=store)
    os.kill(server.pid, signal.SIGSTOP)
    probe = started(shop)
    probe.says("/readyz", 503, "starting")
    assert probe.ask("/healthz")[0] == 200
    os.kill(server.pid, signal.SIGCONT)
    probe.says("/readyz", 200, "active, reads the log")
