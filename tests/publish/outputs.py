"""The outputs under one suite: how each is set up, and what its consumers read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis
from confluent_kafka import Consumer, KafkaError, TopicPartition

from devtools.services.kafka import KafkaServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.publishing import Read


class OutputCase(Protocol):
    """An output of one test. ``once``: each event is there once, whatever was killed; else some may
    be there again. ``order_of_all``: events of all rows are in one order."""

    once: bool
    order_of_all: bool

    def settings(self) -> dict[str, Any]:
        """The publisher's settings."""
        ...

    def events(self) -> list[Read]:
        """All events, those of one row in the order in which a consumer has them."""
        ...


@dataclass
class FilesCase:
    """JSON lines in a folder."""

    folder: Path
    once: bool = True
    order_of_all: bool = True

    def settings(self) -> dict[str, Any]:
        return {"output": "files", "files": {"folder": str(self.folder), "file_bytes_max": 2_000}}

    def events(self) -> list[Read]:
        lines = [
            json.loads(line)
            for path in sorted(self.folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        found: list[Read] = []
        for line in lines:
            again = bool(found) and found[-1].order[0] == line["seq"]
            found.append(Read((line["seq"], int(again)), line.get("key"), line))
        return found


@dataclass
class KafkaCase:
    """A topic for each table, at a real broker."""

    server: KafkaServer
    transactions: bool
    order_of_all: bool = False
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    @property
    def once(self) -> bool:
        return self.transactions

    def settings(self) -> dict[str, Any]:
        kafka = {
            "servers": [self.server.address],
            "security_protocol": "plaintext",
            "transactions": self.transactions,
            "topic": f"{self.prefix}.{{schema}}.{{table}}",
            "positions_topic": f"{self.prefix}.positions",
            "make_topics": True,
        }
        return {"output": "kafka", "kafka": kafka}

    def events(self) -> list[Read]:
        consumer = consumer_of(self.server)
        try:
            topics = consumer.list_topics(timeout=30).topics
            places = [
                TopicPartition(topic, partition, 0)
                for topic, about in topics.items()
                if topic.startswith(f"{self.prefix}.") and not topic.endswith(".positions")
                for partition in about.partitions
            ]
            return [read for read in map(_read, read_all(consumer, places)) if read is not None]
        finally:
            consumer.close()


@dataclass
class RedisCase:
    """A stream for each table, or one, at a real Valkey."""

    server: ValkeyServer
    order_of_all: bool
    once: bool = True
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    def settings(self) -> dict[str, Any]:
        name = self.prefix if self.order_of_all else f"{self.prefix}:{{schema}}.{{table}}"
        return {"output": "redis", "redis": {"url": self.server.url(), "stream": name}}

    def events(self) -> list[Read]:
        with redis.Redis.from_url(self.server.url(), decode_responses=True) as client:
            names = sorted(client.keys(f"{self.prefix}*"))
            streams = [name for name in names if not name.endswith(":writer")]
            return [_entry(*one) for name in streams for one in client.xrange(name)]


def _entry(entry_id: str, fields: Mapping[str, str]) -> Read:
    seq, _, part = entry_id.partition("-")
    key = json.loads(fields["key"]) if "key" in fields else None
    return Read((int(seq), int(part)), key, json.loads(fields["value"]))


def consumer_of(server: KafkaServer) -> Consumer:
    """A consumer of what is committed."""
    return Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )


def read_all(consumer: Consumer, places: list[TopicPartition]) -> list[Any]:
    """All messages of partitions, those of one in their order."""
    if not places:
        return []
    consumer.assign(places)
    left, found = len(places), []
    while left:
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            left -= 1
    return found


def _read(message: Any) -> Read | None:
    """The event of a message; None for a truncate in another partition than the first."""
    seq, _, part = dict(message.headers())["tl_seq"].decode().partition(".")
    value: Mapping[str, Any] = json.loads(message.value())
    if value["op"] == "t" and message.partition() > 0:
        return None
    key = None if message.key() is None else json.loads(message.key())
    return Read((int(seq), int(part or 0)), key, value)
