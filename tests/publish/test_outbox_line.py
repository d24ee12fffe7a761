"""The whole line of an outbox, each part of it killed: an application on PostgreSQL, the worker, a
publisher that delivers at least once, and a service that does its work exactly once and in order.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from devtools.services.kafka import KafkaServer
from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import QUICK, Pipeline, WorkerProcess, poll
from tests.fixtures.publishing import NAME
from tests.fixtures.services import Database, drop_database, make_database
from tests.fixtures.settings import ConfigFactory
from tests.support.outbox_consumer import POINTS, Task
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("order", "invoice")
AGGREGATES = 3
WORKER_POINTS = ("before-part-put", "between-parts-and-manifest", "after-manifest", "after-confirm")
PUBLISHER_POINTS = ("after-write", "after-settle", "after-log")


class Application:
    """It counts each aggregate up, and has an event for each step in the same transaction."""

    def __init__(self, dsn: str, *, by_messages: bool) -> None:
        self._connection = psycopg2.connect(dsn)
        self._by_messages = by_messages
        self._draws = random.Random(7)
        self.steps: Counter[str] = Counter()

    @property
    def events(self) -> int:
        return sum(self.steps.values())

    def work(self, transactions: int) -> None:
        """Commit transactions of some steps each; a third of them is rolled back first."""
        for _ in range(transactions):
            names = [
                f"{self._draws.choice(KINDS)}-{self._draws.randrange(AGGREGATES)}"
                for _ in range(self._draws.randint(1, 3))
            ]
            if self._draws.random() < 0.3:
                self._run(names)
                self._connection.rollback()
            self.steps = self._run(names)
            self._connection.commit()

    def _run(self, names: list[str]) -> Counter[str]:
        steps = self.steps.copy()
        with self._connection.cursor() as cursor:
            for name in names:
                steps[name] += 1
                cursor.execute(
                    "INSERT INTO counts VALUES (%s, 1)"
                    " ON CONFLICT (name) DO UPDATE SET steps = counts.steps + 1",
                    (name,),
                )
                self._announce(cursor, name, steps[name])
        return steps

    def _announce(self, cursor: Any, name: str, step: int) -> None:
        kind = name.partition("-")[0]
        fields = (f"{name}/{step}", kind, name, "Counted", json.dumps({"step": step}))
        if self._by_messages:
            names = ("id", "aggregatetype", "aggregateid", "type", "payload")
            text = json.dumps({**dict(zip(names, fields, strict=True)), "payload": {"step": step}})
            cursor.execute("SELECT pg_logical_emit_message(true, 'outbox', %s)", (text,))
            return
        cursor.execute("INSERT INTO outbox VALUES (%s, %s, %s, %s, %s)", fields)
        cursor.execute("DELETE FROM outbox WHERE id = %s", (fields[0],))

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Line:
    """The parts of the line, by which they are started."""

    pipeline: Pipeline[Database]
    application: Application
    task: Task
    folder: Path

    def publisher(self, **deadly: int) -> WorkerProcess:
        return WorkerProcess(
            self.pipeline.config,
            self.folder,
            until_idle_s=None,
            deadly={
                (name.replace("_", "-"), count): signal.SIGKILL for name, count in deadly.items()
            },
            publisher=NAME,
        )

    def await_published(self) -> None:
        """Return once all of the chain is published."""
        settings = self.pipeline.settings
        log = PublisherLog(open_store(settings.store), settings.pipeline, NAME)

        def is_published() -> bool:
            entry = log.newest()
            return entry is not None and entry.position.seq >= self.pipeline.manifest().last_seq

        poll("the chain is published", is_published)

    def consumer(self, point: str = "", count: int = 0) -> subprocess.Popen[bytes]:
        effects = self.application.events
        task = replace(self.task, effects=effects, point=point, count=count)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.outbox_consumer", json.dumps(asdict(task))],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )


@pytest.fixture
def service(postgres: PostgresServer) -> Iterator[Database]:
    """The service's own database."""
    database = make_database(postgres)
    yield database
    drop_database(postgres, database.name)


@pytest.fixture
def by_messages(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "messages")


@pytest.fixture
def output(request: pytest.FixtureRequest, service: Database) -> tuple[dict[str, Any], Task]:
    """A publisher's settings but for its outbox, and the service's task."""
    prefix = f"t{uuid.uuid4().hex[:8]}"
    topics = [f"{prefix}.{kind}" for kind in KINDS]
    if request.param == "redis":
        valkey: ValkeyServer = request.getfixturevalue("valkey")
        settings = {"output": "redis", "redis": {"url": valkey.url()}}
        return settings, Task("", valkey.url(), topics, service.dsn, 0)
    server: KafkaServer = request.getfixturevalue("kafka")
    kafka = {
        "servers": [server.address],
        "security_protocol": "plaintext",
        "transactions": False,
        "make_topics": True,
        "topic": f"{prefix}-tables",
    }
    return {"output": "kafka", "kafka": kafka}, Task(server.address, "", topics, service.dsn, 0)


@pytest.fixture
def line(
    database: Database,
    config_for: ConfigFactory,
    tmp_path: Path,
    output: tuple[dict[str, Any], Task],
    by_messages: bool,
) -> Iterator[Line]:
    database.run(
        "CREATE TABLE counts (name text PRIMARY KEY, steps int NOT NULL)",
        "CREATE TABLE outbox (id text PRIMARY KEY, aggregatetype text NOT NULL,"
        " aggregateid text NOT NULL, type text NOT NULL, payload jsonb)",
    )
    settings, task = output
    outbox: dict[str, Any] = {"topic": task.topics[0].removesuffix(KINDS[0]) + "{type}"}
    outbox |= {"messages": ["outbox"]} if by_messages else {"table": "public.outbox"}
    publisher = {
        **settings,
        "tables": ["public.nothing"],
        "outbox": outbox,
        "poll_interval_s": 0.02,
        "heartbeat_s": 0.2,
        "takeover_after_s": 1.0,
    }
    source = {"tables": ["public.counts", "public.outbox"], "messages": ["outbox"]}
    config = config_for(database, source=source, capture=QUICK, publish={NAME: publisher})
    application = Application(database.dsn, by_messages=by_messages)
    with Pipeline(database, config, tmp_path) as pipeline:
        yield Line(pipeline, application, task, tmp_path)
    application.close()


@pytest.mark.parametrize(
    ("output", "by_messages"),
    [
        ("kafka", "table"),
        ("redis", "messages"),
        pytest.param("kafka", "messages", marks=pytest.mark.long),
        pytest.param("redis", "table", marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_effects_are_there_once_and_in_order_whoever_is_killed(
    line: Line, service: Database
) -> None:
    worker = line.pipeline.start()
    worker.wait_output("captures a table")
    for turn, point in enumerate(POINTS):
        publisher = line.publisher(**{PUBLISHER_POINTS[turn % 3].replace("-", "_"): turn % 2 + 1})
        while not publisher.ended():
            line.application.work(6)
            line.pipeline.catch_up(worker)
        assert publisher.wait() == -signal.SIGKILL, publisher.output()
        line.application.work(3)
        worker.kill_at(WORKER_POINTS[turn % len(WORKER_POINTS)])
        worker = line.pipeline.start()
        line.pipeline.catch_up(worker)
        publisher = line.publisher()
        line.await_published()
        consumer = line.consumer(point, count=turn + 1)
        assert consumer.wait(60) == -signal.SIGKILL
        publisher.terminate()
    consumer = line.consumer()
    assert consumer.wait(60) == 0
    worker.terminate()
    found: dict[str, list[int]] = {}
    for name, payload in service.rows("SELECT aggregate, payload FROM effects ORDER BY number"):
        found.setdefault(name, []).append(json.loads(payload)["step"])
    steps = line.application.steps
    assert found == {name: list(range(1, count + 1)) for name, count in steps.items()}
    assert len(found) == len(KINDS) * AGGREGATES
    database = line.pipeline.database
    assert not database.rows("SELECT 1 FROM outbox")
    assert dict(database.rows("SELECT name, steps FROM counts")) == steps
