# ruff: noqa: S608  statements are made of constants
"""Transfers between accounts, from a real PostgreSQL into a real Kafka, over kills of publisher and
broker: for a consumer that reads what is committed, each transfer is there whole and once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.publish.outputs import KafkaCase
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog

ACCOUNTS, BALANCE = 8, 1_000
TOTAL = ACCOUNTS * BALANCE
ROUNDS = 8
NAME = "events"


@contextmanager
def transfers(database: Database) -> Iterator[list[int]]:
    """Move money between random accounts, a transaction each, in a thread; the list grows by one
    with each that was committed."""
    done: list[int] = []
    ended = threading.Event()

    def work() -> None:
        chance = random.Random(7)
        with psycopg2.connect(database.dsn) as connection, connection.cursor() as cursor:
            while not ended.wait(0.005):
                pair = sorted(chance.sample(range(1, ACCOUNTS + 1), 2))
                amount = chance.randint(-50, 50)
                for account, change in zip(pair, (amount, -amount), strict=True):
                    cursor.execute(
                        "UPDATE accounts SET balance = balance + %s WHERE id = %s",
                        (change, account),
                    )
                connection.commit()
                done.append(amount)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def check(events: Sequence[Mapping[str, Any]], rows: Mapping[int, int], count: int) -> None:
    """The events are the transfers, whole, once, and in order; they lead to the rows."""
    assert len({one["seq"] for one in events}) == len(events)
    dumped = [one for one in events if one["op"] == "r"]
    logged = [one for one in events if one["op"] != "r"]
    assert [one["seq"] for one in events] == sorted(one["seq"] for one in events)
    balances = {one["row"]["id"]: one["row"]["balance"] for one in dumped}
    assert len(logged) == 2 * count
    for _, group in groupby(logged, lambda one: one["tx"]):
        pair = list(group)
        assert [one["op"] for one in pair] == ["u", "u"]
        balances |= {one["row"]["id"]: one["row"]["balance"] for one in pair}
        assert sum(balances.values()) == TOTAL
    assert balances == rows


def is_published(settings: Settings) -> bool:
    store = open_store(settings.store)
    tail = Chain(store, settings.pipeline).tail()
    entry = PublisherLog(store, settings.pipeline, NAME).newest()
    assert tail is not None
    return entry is not None and entry.position.seq >= tail.manifest.last_seq


@pytest.mark.long
def test_each_transfer_is_there_once_over_kills_of_publisher_and_broker(
    own_database: Database, pipeline_of: PipelineFactory, tmp_path: Path
) -> None:
    chance = random.Random(11)
    own_database.run(
        "CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL)",
        f"INSERT INTO accounts SELECT g, {BALANCE} FROM generate_series(1, {ACCOUNTS}) g",
    )
    # One partition: what a consumer has at any time is a beginning of what was committed.
    with KafkaServer(tmp_path / "broker", settings={"num.partitions": "1"}) as broker:
        case = KafkaCase(broker, transactions=True, more={"timeout_s": 2})
        quick = {"poll_interval_s": 0.01, "heartbeat_s": 0.3, "takeover_after_s": 1.5}
        publisher = {**case.settings(), **quick, "start": "beginning"}
        pipeline = pipeline_of(own_database, publish={NAME: publisher})
        pipeline.drain()
        capture = pipeline.start()
        with transfers(own_database) as done:
            for number in range(ROUNDS):
                worker = worker_of(pipeline.config, tmp_path)
                settled = chance.randint(1, 12)
                worker.wait_point("after-settle", settled)
                if number % 3 == 2:
                    broker.kill()
                    broker.start()
                worker.kill()
        pipeline.finish(capture)
        worker = worker_of(pipeline.config, tmp_path)
        poll("it is published", lambda: is_published(pipeline.settings))
        worker.terminate()
        rows = own_database.rows("SELECT id, balance FROM accounts")
        events = [one.value for one in case.events()]
        check(events, dict(rows), len(done))


def worker_of(config: Path, folder: Path) -> WorkerProcess:
    return WorkerProcess(config, folder, until_idle_s=None, deadly={}, publisher=NAME)
