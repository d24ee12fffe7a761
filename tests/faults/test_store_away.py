"""The store hangs, dies and comes back while a worker captures: what it buffers is bounded, the
source keeps its log and a warning comes in time, and in the end everything is there, once.

``STORE_AWAY_S=60`` keeps it away for longer; `make faults` does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from devtools.services.ports import free_port
from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.s3 import S3Server
from tests.faults import mysql_workload
from tests.faults.mysql_workload import MysqlWorkload
from tests.faults.rewired import patient
from tests.faults.s3_faults import ALWAYS, S3Faults, Trouble
from tests.fixtures.capture import PATIENCE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.mysql_servers import ServerFactory, make_mysql_database
from tests.fixtures.services import Database, make_database
from tests.support import workload
from tests.support.checks import check_equal, check_history
from tests.support.traffic import Traffic
from tests.support.workload import Workload

MIB = 1 << 20
AWAY_S = float(os.environ.get("STORE_AWAY_S", "3"))
"""For how long the store hangs, and then again for how long it is not there at all."""
ROWS = 9_000
REPEATS = 250
"""Of 32 characters: the rows written meanwhile fill what the source keeps beyond the warning."""
KEPT_MIB = 80
EXPIRES_S = 6
LIMITS: Mapping[str, Any] = {
    "upload_bytes_max": 4 * MIB,
    "segment_bytes_max": MIB,
    "batch_bytes_max": MIB // 2,
    "load_interval_s": 0.5,
}
POSTGRES_TABLES = tuple(name.removeprefix("public.") for name in workload.TABLES)
VERSIONED = ("accounts", "orders", "pairs")
RSS_MAX = 45 * MIB
"""By how much the worker may grow: its limits, what one segment costs to encode, the allocator
(mostly 3 to 9 MiB, up to 28 beside other work). One that does not stop reading grows by 90."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A source of the test's own that will not keep its log for long. ``held`` says from where on
    it still has it; ``rows`` is a query's part that yields numbers ``g`` of a range."""

    database: Any
    prefix: str
    tables: tuple[str, ...]
    traffic: Callable[[], Traffic]
    held: str
    rows: str

    def write_much(self) -> None:
        """Many times what the worker may buffer, and nearly all that the source may keep."""
        steps = 10
        for step in range(steps):
            first, last = step * ROWS // steps, (step + 1) * ROWS // steps - 1
            rows = self.rows.format(first=first, last=last)
            value = f"repeat(md5(g), {REPEATS})"
            self.database.run(f"INSERT INTO big SELECT i, {value} FROM {rows}")  # noqa: S608

    def kept_from(self) -> str:
        return str(self.database.rows(self.held)[0][0])


@pytest.fixture
def postgres_origin(tmp_path: Path) -> Iterator[Origin]:
    limits = {**NOT_DURABLE, "max_slot_wal_keep_size": f"{KEPT_MIB}MB"}
    with PostgresServer(tmp_path / "own-postgres", settings=limits) as server:
        database = make_database(server)
        big = "CREATE TABLE big (id bigint PRIMARY KEY, v text STORAGE EXTERNAL)"
        database.run(*workload.SCHEMA, big)
        yield Origin(
            database=database,
            prefix="public.",
            tables=(*POSTGRES_TABLES, "big"),
            traffic=lambda: Workload(database.dsn, seed=51, pause_s=0.05),
            held="SELECT confirmed_flush_lsn FROM pg_replication_slots"
            " WHERE database = current_database()",
            rows="(SELECT n AS i, n::text AS g FROM generate_series({first}, {last}) n) r",
        )


@pytest.fixture
def mariadb_origin(start_server: ServerFactory) -> Origin:
    server = start_server("mariadb", binlog_expire_logs_seconds=str(EXPIRES_S))
    database = make_mysql_database(server, "mariadb")
    big = "CREATE TABLE big (id bigint PRIMARY KEY, v longtext)"
    database.run(*mysql_workload.SCHEMA, big)
    return Origin(
        database=database,
        prefix=f"{database.name}.",
        tables=(*mysql_workload.NAMES, "big"),
        traffic=lambda: MysqlWorkload(database, seed=51, pause_s=0.05),
        held="SHOW BINARY LOGS",
        rows="(SELECT seq AS i, seq AS g FROM seq_{first}_to_{last}) r",
    )


@pytest.fixture
def server(s3: S3Server) -> Iterator[S3Server]:
    """The run's S3 server, to be stopped and killed; running again behind the test."""
    yield s3
    if s3.running:
        os.kill(s3.pid, signal.SIGCONT)
    s3.start()


def s3_store(server: S3Server, endpoint: str | None = None) -> dict[str, Any]:
    """The settings' section, with little patience."""
    return {
        "url": f"s3://tideline/{uuid.uuid4().hex}",
        **server.access,
        "endpoint": endpoint or server.endpoint,
        "timeout_s": 6.0,
        "retry_s": 6.0,
    }


class Watched:
    """A worker, looked at ten times a second from outside: its memory and its metrics."""

    def __init__(self, worker: WorkerProcess, port: int) -> None:
        self.worker = worker
        self.largest: dict[str, float] = {}
        self._address = f"http://127.0.0.1:{port}/metrics"
        self._process = psutil.Process(worker.pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def metrics(self) -> dict[str, float]:
        """Its metrics without labels, and its memory as ``rss``."""
        with urllib.request.urlopen(self._address, timeout=PATIENCE_S) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
        found = {name: float(value) for name, value in (x for x in lines if len(x) == 2)}
        return {**found, "rss": float(self._process.memory_info().rss)}

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            for name, value in self.metrics().items():
                self.largest[name] = max(value, self.largest.get(name, value))


@pytest.mark.parametrize("source", ["postgres", "mariadb"])
def test_the_store_is_away(
    source: str, server: S3Server, pipeline_of: PipelineFactory, request: pytest.FixtureRequest
) -> None:
    origin: Origin = request.getfixturevalue(f"{source}_origin")
    port = free_port()
    capture = {**LIMITS, "metrics_port": port}
    shop = pipeline_of(origin.database, store=s3_store(server), capture=capture)
    with origin.traffic() as traffic:
        worker = shop.start()
        worker.wait_point("after-manifest", 5)
        # Only then has it loaded all that it works with.
        shop.wait_state(
            "the first dumps end", lambda state: bool(state.tables) and not state.requests
        )
        watched = Watched(worker, port)
        rss = watched.metrics()["rss"]
        with watched:
            os.kill(server.pid, signal.SIGSTOP)
            begun = time.monotonic()
            origin.write_much()
            worker.wait_output("reading stops")
            kept_from = origin.kept_from()
            time.sleep(max(0.0, AWAY_S - (time.monotonic() - begun)))
            server.kill()
            worker.wait_output("the source will remove its log soon")
            time.sleep(AWAY_S)
            traffic.wait_for(10)
            assert origin.kept_from() == kept_from
            poll("its metrics tell how long", partial(tells_of, watched, AWAY_S))
        largest = watched.largest
        assert MIB < largest["tideline_pending_bytes"] <= LIMITS["upload_bytes_max"] + 2 * MIB
        assert largest["rss"] - rss < RSS_MAX, f"{(largest['rss'] - rss) / MIB:.0f} MiB"
        server.start()
        worker.wait_point("after-manifest", worker.points()["after-manifest"] + 3)
        poll("the warning is over", lambda: watched.metrics()["tideline_log_expiring"] == 0)
    ended_well(shop, worker, origin.prefix, origin.tables)


def tells_of(watched: Watched, away_s: float) -> bool:
    now = watched.metrics()
    expiring = now["tideline_log_expiring"] == 1
    return expiring and now["tideline_store_unavailable_seconds"] > away_s


def test_a_store_in_trouble_all_the_time(
    database: Database, s3: S3Server, pipeline_of: PipelineFactory
) -> None:
    """Slow, refusing, silent, cut off and repeating late, a dump and traffic throughout."""
    database.run(*workload.SCHEMA)
    with S3Faults(s3) as faults:
        store = {**s3_store(s3, faults.endpoint), "retry_s": 60.0, "timeout_s": 2.0}
        shop = pipeline_of(database, store=store, capture={**LIMITS, "takeover_after_s": 30.0})
        with Workload(database.dsn, seed=52, pause_s=0.01) as traffic:
            worker = shop.start()
            worker.wait_point("after-manifest", 3)
            troubles = [
                Trouble(status=503, code="SlowDown", times=3),
                Trouble(kind="create", status=500, effect=True, times=2),
                Trouble(kind="create", dropped=True, effect=True, times=2),
                Trouble(kind="create", silent=True, effect=True),
                Trouble(kind="create", status=409, code="ConditionalRequestConflict"),
                Trouble(kind="create", kept=True, times=3),
                Trouble(kind="put", silent=True),
                Trouble(kind="put", dropped=True, effect=True, times=2),
                Trouble(kind="put", status=429, code="TooManyRequests", times=2),
                Trouble(kind="put", kept=True, times=3),
                Trouble(kind="get", body_bytes=20),
                Trouble(delay_s=0.2, times=20),
                Trouble(kind="list", status=500, times=ALWAYS),
            ]
            for trouble in troubles:
                faults.add(trouble)
            busy = [trouble for trouble in troubles if trouble.kind not in ("list", "get")]
            poll("all troubles came", lambda: all(one.met == one.times for one in busy))
            assert set(faults.deliver_late()) == {200, 412}
            traffic.wait_for(100)
        assert faults.seen["list"] == 0
        ended_well(shop, worker, "public.", POSTGRES_TABLES)


def test_a_store_that_ignores_the_condition_is_refused(
    database: Database, s3: S3Server, pipeline_of: PipelineFactory
) -> None:
    """At the start, before anything is written to the chain or made in the source."""
    database.run("CREATE TABLE items (id int PRIMARY KEY)")
    with S3Faults(s3) as faults:
        faults.add(Trouble(kind="create", unconditional=True, times=ALWAYS))
        shop = pipeline_of(database, store=s3_store(s3, faults.endpoint))
        worker = shop.start()
        assert worker.wait() == 2, worker.output()
        assert "lets two writers create the same object" in worker.output()
        faults.heal()
        assert shop.tail() is None
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert database.rows(slots) == [(0,)]


def ended_well(
    shop: Pipeline[Any], worker: WorkerProcess, prefix: str, tables: Sequence[str]
) -> None:
    """A clean stop; everything is in the chain, once, and one writer wrote it."""
    worker.terminate()
    assert len({manifest.writer for manifest in shop.manifests()}) == 1
    shop.drain(config=patient(shop))
    captured = check_equal(shop.settings, shop.database, [f"{prefix}{name}" for name in tables])
    versioned = [f"{prefix}{name}" for name in VERSIONED]
    check_history(captured, ledger=f"{prefix}ledger", versioned=versioned)
