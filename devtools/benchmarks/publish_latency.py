"""Measures the time from a client's commit to its event in Kafka, at 1,000 transactions per second.

PostgreSQL, worker, publisher and broker are processes of their own; this one writes and consumes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg2
from confluent_kafka import Consumer, TopicPartition

from devtools.benchmarks import orders
from devtools.benchmarks.follow_rig import running, settings_file, until
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig
from devtools.services.kafka import KafkaServer

NAME = "publish_latency"
FLUSH_S = 0.1
RATE = 1_000
WRITERS = 2
WARM_UP = 3_000
"""Transactions that are not counted: imports, topics, first connections."""
GOAL_MS = 250.0
_PATIENCE_S = 60.0


def run(rows: int) -> Iterator[Result]:
    """Make ``rows`` / 50 single-row inserts at the given rate, with transactions and without."""
    count = max(rows // 50, 5_000)
    for transactions in (True, False):
        with (
            rig(synchronous_commit="on") as server,
            KafkaServer(server.folder / "kafka", settings={"num.partitions": "1"}) as kafka,
        ):
            committed, arrived = _measured(server, kafka, count, transactions)
            took = sorted(arrived[one] - committed[one] for one in range(WARM_UP, count))
            yield from _lines(took, _rate(committed), transactions)


def _measured(
    server: CaptureRig, kafka: KafkaServer, count: int, transactions: bool
) -> tuple[dict[int, float], dict[int, float]]:
    """Return by id when a row was committed, and when a consumer had its event."""
    orders.create(server.cursor)
    settings = server.settings(flush_interval_s=FLUSH_S)
    config = settings_file(server, settings)
    config.write_text(config.read_text() + _publisher(kafka, transactions))
    committed: dict[int, float] = {}
    with running("capture", config), running("publish", config, "events"):
        _insert(server, committed, [0])
        until("the first event is there", lambda: _topic_is_there(kafka))
        with _consuming(kafka) as arrived:
            writers = [
                threading.Thread(target=_write, args=(server, committed, count, mine))
                for mine in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            until("all events are there", lambda: len(arrived) >= count)
            return committed, dict(arrived)


def _publisher(kafka: KafkaServer, transactions: bool) -> str:
    return f"""
        [publish.events]
        output = "kafka"
        [publish.events.kafka]
        servers = ["{kafka.address}"]
        security_protocol = "plaintext"
        topic = "events"
        make_topics = true
        transactions = {json.dumps(transactions)}
        """


def _topic_is_there(kafka: KafkaServer) -> bool:
    consumer = _consumer(kafka)
    try:
        about = consumer.list_topics("events", 30).topics["events"]
        place = TopicPartition("events", 0)
        return bool(about.partitions) and consumer.get_watermark_offsets(place, 30)[1] > 0
    finally:
        consumer.close()


@contextmanager
def _consuming(kafka: KafkaServer) -> Iterator[dict[int, float]]:
    """Read what is committed in a thread; the times of arrival are by id."""
    arrived: dict[int, float] = {}
    ended = threading.Event()

    def read() -> None:
        consumer = _consumer(kafka)
        consumer.assign([TopicPartition("events", 0, 0)])
        while not ended.is_set():
            messages = consumer.consume(1_000, 0.005)
            now = time.monotonic()
            for message in messages:
                arrived.setdefault(json.loads(message.value() or b"")["key"]["id"], now)
        consumer.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield arrived
    finally:
        ended.set()
        thread.join(_PATIENCE_S)


def _consumer(kafka: KafkaServer) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )


def _write(server: CaptureRig, committed: dict[int, float], count: int, mine: int) -> None:
    begun = time.monotonic()

    def at_its_time(number: int) -> int:
        ahead = begun + number / RATE - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        return number

    _insert(server, committed, map(at_its_time, range(mine + 1, count, WRITERS)))


def _insert(server: CaptureRig, committed: dict[int, float], numbers: Iterable[int]) -> None:
    connection = psycopg2.connect(server.dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    for number in numbers:
        cursor.execute(
            "INSERT INTO orders VALUES (%s, 1, 1, 1, 1, 1, 'sku', NULL, NULL, true, now(), now())",
            (number,),
        )
        committed[number] = time.monotonic()
    connection.close()


def _rate(committed: dict[int, float]) -> float:
    return len(committed) / (max(committed.values()) - committed[1])


def _lines(took: Sequence[float], rate: float, transactions: bool) -> Iterator[Result]:
    kind = "with transactions of Kafka's" if transactions else "without"
    for share in (50, 99):
        value = took[min(len(took) * share // 100, len(took) - 1)] * 1000
        yield result(
            NAME,
            f"{rate:.0f} transactions/s, {kind}",
            f"commit to event, p{share}",
            value=(value, "ms"),
            baseline=("flush interval", FLUSH_S * 1000),
            goal=f"p99 ≤ {GOAL_MS:g} ms",
        )
    yield result(
        NAME,
        f"{rate:.0f} transactions/s, {kind}",
        "load of the machine, average of a minute",
        value=(os.getloadavg()[0], "processes"),
        baseline=("cores", os.cpu_count() or 1),
        goal="",
    )
