"""The outputs under one suite: how each is set up, and what its consumers read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition

from devtools.services.kafka import KafkaServer
from tests.fixtures.publishing import Read

Pair = tuple[Any, Any]
"""A key and a value; a tombstone's value is None."""


class OutputCase(Protocol):
    """An output of one test. ``once``: each event is there once, whatever was killed; else some may
    be there again. ``order_of_all``: events of all rows are in one order. ``cuts``: one that is
    moved back removes what it had behind that place."""

    order_of_all: bool
    cuts: bool

    @property
    def once(self) -> bool: ...

    def settings(self) -> dict[str, Any]:
        """The publisher's settings."""
        ...

    def events(self) -> list[Read]:
        """All events, those of one row in the order in which a consumer has them."""
        ...

    def pairs(self) -> list[Pair]:
        """Keys and values of any form that is JSON; those of one row in their order."""
        ...


@dataclass
class FilesCase:
    """JSON lines in a folder."""

    folder: Path
    once: bool = True
    order_of_all: bool = True
    cuts: bool = True

    def settings(self) -> dict[str, Any]:
        return {"output": "files", "files": {"folder": str(self.folder), "file_bytes_max": 2_000}}

    def events(self) -> list[Read]:
        found: list[Read] = []
        for line in self._lines():
            again = bool(found) and found[-1].order[0] == line["seq"]
            found.append(Read((line["seq"], int(again)), line.get("key"), line))
        return found

    def pairs(self) -> list[Pair]:
        return [(line["key"], line["value"]) for line in self._lines()]

    def _lines(self) -> list[Any]:
        return [
            json.loads(line)
            for path in sorted(self.folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]


@dataclass
class KafkaCase:
    """A topic for each table, at a real broker."""

    server: KafkaServer
    transactions: bool
    order_of_all: bool = False
    cuts: bool = False
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
        return [read for read in map(_read, self._messages()) if read is not None]

    def pairs(self) -> list[Pair]:
        return [(_decoded(one.key()), _decoded(one.value())) for one in self._messages()]

    def _messages(self) -> list[Any]:
        consumer = consumer_of(self.server)
        try:
            topics = consumer.list_topics(timeout=30).topics
            places = [
                TopicPartition(topic, partition, 0)
                for topic, about in topics.items()
                if topic.startswith(f"{self.prefix}.") and not topic.endswith(".positions")
                for partition in about.partitions
            ]
            return read_all(consumer, places)
        finally:
            consumer.close()


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


def _decoded(raw: bytes | None) -> Any:
    return None if raw is None else json.loads(raw)


def _read(message: Any) -> Read | None:
    """The event of a message; None for a truncate in another partition than the first."""
    seq, _, part = dict(message.headers())["tl_seq"].decode().partition(".")
    value: Mapping[str, Any] = json.loads(message.value())
    if value["op"] == "t" and message.partition() > 0:
        return None
    key = None if message.key() is None else json.loads(message.key())
    return Read((int(seq), int(part or 0)), key, value)
