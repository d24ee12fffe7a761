"""A service that consumes an outbox's events, in a process that kills itself at a point.

It notes each event in its own database in the transaction of its work, and acknowledges it behind
that. Arguments: a JSON document, see `Task`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg2

from tideline.consumer import make_seen_table, seen

GROUP = "service"
POINTS = ("taken", "noted", "worked", "committed", "acknowledged")


@dataclass(frozen=True)
class Task:
    """Where events come from (``kafka`` or ``redis``), in ``topics``; where the work is done, and
    until how many effects. It kills itself when it reaches ``point`` for the ``count``-th time."""

    kafka: str
    redis: str
    topics: list[str]
    dsn: str
    effects: int
    point: str = ""
    count: int = 0


@dataclass(frozen=True)
class Delivery:
    """An event: id, aggregate and payload; and what has it not come again."""

    event_id: str
    aggregate: str
    payload: str
    acknowledge: Callable[[], object]


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    reached: Counter[str] = Counter()

    def pass_by(point: str) -> None:
        reached[point] += 1
        if (point, reached[point]) == (task.point, task.count):
            os.kill(os.getpid(), signal.SIGKILL)

    with closing(psycopg2.connect(task.dsn)) as connection:
        prepare(connection)
        deliveries = from_kafka(task) if task.kafka else from_redis(task)
        for delivery in deliveries:
            if delivery is not None:
                handle(connection, delivery, pass_by)
            if effects_in(connection) >= task.effects:
                return


def handle(connection: Any, delivery: Delivery, pass_by: Callable[[str], None]) -> None:
    """Do the work of an event once, whatever happens at any point."""
    pass_by("taken")
    if not seen(connection, delivery.event_id):
        pass_by("noted")
        connection.cursor().execute(
            "INSERT INTO effects (aggregate, payload) VALUES (%s, %s)",
            (delivery.aggregate, delivery.payload),
        )
        pass_by("worked")
    connection.commit()
    pass_by("committed")
    delivery.acknowledge()
    pass_by("acknowledged")


def prepare(connection: Any) -> None:
    make_seen_table(connection)
    connection.cursor().execute(
        "CREATE TABLE IF NOT EXISTS effects"
        " (number bigserial PRIMARY KEY, aggregate text, payload text)"
    )
    connection.commit()


def effects_in(connection: Any) -> int:
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM effects")
    (count,) = cursor.fetchone()
    connection.rollback()
    return int(count)


def from_kafka(task: Task) -> Iterator[Delivery | None]:
    """Deliveries from where the group stands; None where there is none yet."""
    from confluent_kafka import OFFSET_STORED, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": task.kafka,
            "group.id": f"{GROUP}-{task.topics[0]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    with closing(consumer):
        found: dict[str, Any] = {}
        while not set(task.topics) <= found.keys():
            found = consumer.list_topics(timeout=30).topics
        consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_STORED)
                for topic in task.topics
                for partition in found[topic].partitions
            ]
        )
        while True:
            message: Any = consumer.poll(0.2)
            if message is None or message.error() is not None:
                yield None
                continue
            event_id = dict(message.headers())["id"].decode()

            def acknowledge(message: Any = message) -> None:
                consumer.commit(message=message, asynchronous=False)

            yield Delivery(event_id, message.key().decode(), message.value().decode(), acknowledge)


def from_redis(task: Task) -> Iterator[Delivery | None]:
    """The same; what was delivered before and not acknowledged comes first."""
    import redis

    with redis.Redis.from_url(task.redis, decode_responses=True) as client:
        for topic in task.topics:
            try:
                client.xgroup_create(topic, GROUP, "0", mkstream=False)
            except redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        for start in ("0", ">"):
            while True:
                streams: Any = client.xreadgroup(
                    GROUP, "one", dict.fromkeys(task.topics, start), count=1, block=200
                )
                entries = [(name, one) for name, some in streams for one in some]
                if not entries:
                    yield None
                    if start == "0":
                        break
                for name, (entry_id, fields) in entries:

                    def acknowledge(name: str = name, entry_id: str = entry_id) -> None:
                        client.xack(name, GROUP, entry_id)

                    yield Delivery(fields["header:id"], fields["key"], fields["value"], acknowledge)


if __name__ == "__main__":
    main()
