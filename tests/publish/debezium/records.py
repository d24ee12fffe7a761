"""Records with Debezium's envelope, as consumers read them, and what two of them differ in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TopicPartition

from devtools.services.kafka import KafkaServer
from tests.publish.outputs import consumer_of, read_all

MISSING = "(missing)"
Leaves = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """A record. ``value`` is None for a tombstone; key and value are ``{"schema", "payload"}``."""

    table: str
    key: Mapping[str, Any] | None
    value: Mapping[str, Any] | None

    @property
    def of_row(self) -> str:
        """The row that it is of."""
        key = None if self.key is None else self.key["payload"]
        return f"{self.table} {json.dumps(key)}"

    @property
    def op(self) -> str:
        return "" if self.value is None else self.value["payload"]["op"]

    def leaves(self) -> Leaves:
        """Its values by their paths, those of schemas too."""
        return dict(_leaves({"key": self.key, "value": self.value}, ""))


def records_of(server: KafkaServer, prefix: str) -> list[Record]:
    """All records of topics that begin with ``prefix``, those of one row in their order. A truncate
    is taken from the first partition only."""
    consumer = consumer_of(server)
    try:
        topics = consumer.list_topics(timeout=30).topics
        places = [
            TopicPartition(topic, partition, 0)
            for topic, about in topics.items()
            if topic.startswith(f"{prefix}.") and topic.count(".") == 2
            for partition in about.partitions
        ]
        read = [(one.partition(), _record(one)) for one in read_all(consumer, places)]
        return [one for place, one in read if one.op != "t" or place == 0]
    finally:
        consumer.close()


def by_row(records: list[Record]) -> dict[str, list[Record]]:
    """The records of each row, in their order."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.of_row, []).append(record)
    return found


def differing(theirs: Record, ours: Record) -> Iterator[tuple[str, Any, Any]]:
    """The paths at which two records differ, with what each has there."""
    first, second = theirs.leaves(), ours.leaves()
    for path in [*first, *(path for path in second if path not in first)]:
        values = first.get(path, MISSING), second.get(path, MISSING)
        if values[0] != values[1] or type(values[0]) is not type(values[1]):
            yield path, *values


def _record(message: Any) -> Record:
    key, value = message.key(), message.value()
    return Record(
        message.topic().rpartition(".")[2],
        None if key is None else json.loads(key),
        None if value is None else json.loads(value),
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for one in value:
            rest = {name: what for name, what in one.items() if name != "field"}
            yield from _leaves(rest, f"{path}.{one['field']}")
    else:
        yield path, value
