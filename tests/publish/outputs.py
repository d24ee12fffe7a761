"""The outputs under one suite: how each is set up, and what its consumers read."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq
import redis
from confluent_kafka import Consumer, KafkaError, TopicPartition

from devtools.services.kafka import KafkaServer
from devtools.services.kinesis import REGION, THROTTLED, KinesisServer
from devtools.services.search_stand_in import ClusterCall, SearchServer
from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import poll
from tests.fixtures.publishing import Read
from tests.support.webhook_server import SECRET, WebhookServer

OUTBOX_TOPIC = "outbox.event."
Pair = tuple[Any, Any]
"""A key and a value; a tombstone's value is None."""


@dataclass(frozen=True, slots=True)
class OutboxRead:
    """An outbox's event as a consumer has it; ``payload`` None: a tombstone."""

    order: tuple[int, int]
    route: str
    key: str
    headers: Mapping[str, str]
    payload: str | None


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


class OutboxCase(OutputCase, Protocol):
    """An output that carries an outbox's events, too."""

    def outbox(self) -> list[OutboxRead]:
        """All events of an outbox, those of one aggregate in the order in which a consumer has
        them; topics begin with `OUTBOX_TOPIC`. Events of tables are left out."""
        ...

    @property
    def topic_prefix(self) -> str:
        """What the topics of this test's outbox begin with, before `OUTBOX_TOPIC`."""
        ...


class PairsCase(OutputCase, Protocol):
    """One that shows events of every form, tombstones among them."""

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
    topic_prefix: str = ""

    def settings(self) -> dict[str, Any]:
        return {"output": "files", "files": {"folder": str(self.folder), "file_bytes_max": 2_000}}

    def events(self) -> list[Read]:
        return list(with_parts(of_tables(self._lines())))

    def outbox(self) -> list[OutboxRead]:
        return enclosed(self._lines())

    def pairs(self) -> list[Pair]:
        return [(line["key"], line["value"]) for line in self._lines()]

    def _lines(self) -> list[Any]:
        return [
            json.loads(line)
            for path in sorted(self.folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]


@dataclass
class ParquetCase:
    """Parquet files in a folder for each table."""

    folder: Path
    once: bool = True
    order_of_all: bool = False
    cuts: bool = True
    topic_prefix: str = ""

    def settings(self) -> dict[str, Any]:
        files = {"folder": str(self.folder), "format": "parquet", "file_age_s": 0.3}
        return {"output": "files", "files": files}

    def events(self) -> list[Read]:
        paths = sorted(self.folder.glob("*/*.parquet"))
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        return [
            Read(
                (row["seq"], row["part"]),
                None if row["key"] is None else json.loads(row["key"]),
                json.loads(row["value"]),
            )
            for row in rows
            if "topic" not in json.loads(row["value"])
        ]

    def outbox(self) -> list[OutboxRead]:
        paths = sorted(self.folder.glob(f"{OUTBOX_TOPIC.replace('.', '_x2e_')}*/*.parquet"))
        rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
        assert all(json.loads(row["key"]) == json.loads(row["value"])["key"] for row in rows)
        return enclosed(json.loads(row["value"]) for row in rows)


@dataclass
class KafkaCase:
    """A topic for each table, at a real broker. ``more``: settings of Kafka's besides."""

    server: KafkaServer
    transactions: bool
    order_of_all: bool = False
    cuts: bool = False
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def topic_prefix(self) -> str:
        return f"{self.prefix}_"

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
            **self.more,
        }
        return {"output": "kafka", "kafka": kafka}

    def events(self) -> list[Read]:
        return [read for read in map(_read, self._messages()) if read is not None]

    def pairs(self) -> list[Pair]:
        return [(_decoded(one.key()), _decoded(one.value())) for one in self._messages()]

    def outbox(self) -> list[OutboxRead]:
        found = []
        for one in self._messages(f"{self.prefix}_{OUTBOX_TOPIC}"):
            headers = {name: value.decode() for name, value in one.headers()}
            assert len(headers) == len(one.headers())
            order = (int(headers.pop("tl_seq")), 0)
            payload = None if one.value() is None else one.value().decode()
            found.append(OutboxRead(order, one.topic(), one.key().decode(), headers, payload))
        return found

    def _await_ends(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Return once no transaction is open: a commit has answered before its markers are in each
        partition."""
        everything = consumer_of(self.server, "read_uncommitted")

        def ends(of: Consumer) -> list[Any]:
            return [of.get_watermark_offsets(place, 30) for place in places]

        try:
            poll("transactions have ended", lambda: ends(consumer) == ends(everything))
        finally:
            everything.close()

    def _messages(self, prefix: str = "") -> list[Any]:
        consumer = consumer_of(self.server)
        try:
            topics = consumer.list_topics(timeout=30).topics
            places = [
                TopicPartition(topic, partition, 0)
                for topic, about in topics.items()
                if topic.startswith(prefix or f"{self.prefix}.")
                and not topic.endswith(".positions")
                for partition in about.partitions
            ]
            self._await_ends(consumer, places)
            return read_all(consumer, places)
        finally:
            consumer.close()


@dataclass
class RedisCase:
    """A stream for each table, or one, at a real Valkey."""

    server: ValkeyServer
    order_of_all: bool
    once: bool = True
    cuts: bool = True
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    @property
    def topic_prefix(self) -> str:
        return f"{self.prefix}_"

    def settings(self) -> dict[str, Any]:
        name = self.prefix if self.order_of_all else f"{self.prefix}:{{schema}}.{{table}}"
        return {"output": "redis", "redis": {"url": self.server.url(), "stream": name}}

    def events(self) -> list[Read]:
        with redis.Redis.from_url(self.server.url(), decode_responses=True) as client:
            names = sorted(client.keys(f"{self.prefix}*"))
            streams = [name for name in names if not name.endswith(":writer")]
            streams = [name for name in streams if OUTBOX_TOPIC not in name]
            return [_entry(*one) for name in streams for one in client.xrange(name)]

    def outbox(self) -> list[OutboxRead]:
        with redis.Redis.from_url(self.server.url(), decode_responses=True) as client:
            names = sorted(client.keys(f"{self.prefix}_{OUTBOX_TOPIC}*"))
            streams = [name for name in names if not name.endswith(":writer")]
            return [_outbox_entry(name, *one) for name in streams for one in client.xrange(name)]


@dataclass
class WebhookCase:
    """An endpoint that is away now and then, and drops connections with requests that it took."""

    server: WebhookServer
    once: bool = False
    order_of_all: bool = True
    cuts: bool = False
    topic_prefix: str = ""

    def __post_init__(self) -> None:
        self.server.answer = self._answer

    def settings(self) -> dict[str, Any]:
        hook = {
            "url": self.server.url,
            "secret": SECRET,
            "timeout_s": 0.7,
            "batch_events_max": 7,
            "pause_max_s": 0.1,
        }
        return {"output": "webhook", "webhook": hook}

    def events(self) -> list[Read]:
        assert all(one.is_signed() for one in self.server.received)
        return list(with_parts(of_tables(self.server.taken())))

    def outbox(self) -> list[OutboxRead]:
        assert all(one.is_signed() for one in self.server.received)
        return enclosed(self.server.taken())

    @staticmethod
    def _answer(number: int, _: object) -> tuple[int, Mapping[str, str]]:
        return (503 if number % 5 == 2 else 0 if number % 7 == 3 else 200), {}


@dataclass
class KinesisCase:
    """A stream of two shards; a quarter of what is put fails."""

    server: KinesisServer
    once: bool = False
    order_of_all: bool = False
    cuts: bool = False
    topic_prefix: str = ""
    stream: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.server.call("CreateStream", StreamName=self.stream, ShardCount=2)
        self.server.fault = self._fault

    def settings(self) -> dict[str, Any]:
        kinesis = {
            "stream": self.stream,
            "region": REGION,
            "endpoint": self.server.url,
            "access_key_id": "k",
            "secret_access_key": "s",
            "timeout_s": 0.7,
        }
        return {"output": "kinesis", "kinesis": kinesis}

    def events(self) -> list[Read]:
        """Of a truncate, which is in each shard, one."""
        found = [
            one
            for one in self.server.records(self.stream)
            if "topic" not in json.loads(base64.b64decode(one["Data"]))
        ]
        first = min((one["ShardId"] for one in found), default="")
        values = [
            value
            for one in found
            if (value := json.loads(base64.b64decode(one["Data"])))["op"] != "t"
            or one["ShardId"] == first
        ]
        deleted = {value["seq"] for value in values if value["op"] == "d"}
        return [
            Read((one["seq"], int(one["op"] == "u" and one["seq"] in deleted)), one.get("key"), one)
            for one in values
        ]

    def outbox(self) -> list[OutboxRead]:
        found = self.server.records(self.stream)
        return enclosed(json.loads(base64.b64decode(one["Data"])) for one in found)

    @staticmethod
    def _fault(number: int, records: list[dict[str, Any]]) -> Mapping[int, str]:
        return {at: THROTTLED for at in range(len(records)) if (number + at) % 4 == 0}


def of_tables(values: Iterable[Any]) -> Iterator[Any]:
    """Those of ``values`` that are no outbox's events."""
    return (one for one in values if "topic" not in one)


def enclosed(values: Iterable[Mapping[str, Any]]) -> list[OutboxRead]:
    """The events of an outbox among ``values``, which are in envelopes."""
    return [
        OutboxRead((one["seq"], 0), one["topic"], one["key"], one["headers"], one["payload"])
        for one in values
        if "topic" in one
    ]


@dataclass
class SearchCase:
    """A search cluster that is away now and then, drops connections, and takes some documents of a
    request only. It has the last of each row alone."""

    server: SearchServer
    once: bool = True
    order_of_all: bool = False
    cuts: bool = True

    def __post_init__(self) -> None:
        self.server.fault = self._fault
        self.server.item_fault = self._item_fault

    def settings(self) -> dict[str, Any]:
        cluster = {
            "url": self.server.url,
            "index": "{schema}-{table}",
            "timeout_s": 0.7,
            "batch_events_max": 7,
            "pause_max_s": 0.1,
        }
        return {"output": "opensearch", "opensearch": cluster}

    def events(self) -> list[Read]:
        return [
            _document(table, int(name), source)
            for index, table in _INDEXES.items()
            for name, source in self.server.sources(index).items()
        ]

    @staticmethod
    def _fault(call: ClusterCall) -> int | None:
        return {2: 503, 6: 0}.get(call.number % 9)

    @staticmethod
    def _item_fault(number: int, place: int) -> tuple[int, str] | None:
        throttled = (number + place) % 11 == 0
        return (429, "es_rejected_execution_exception") if throttled else None


_INDEXES = {
    "public-orders": "public.orders",
    "public-_x4f_rder_x20__x49_tems": 'public."Order Items"',
}


def _document(table: str, name: int, source: Mapping[str, Any]) -> Read:
    row = {key: value for key, value in source.items() if key != "tl_seq"}
    return Read((source["tl_seq"], 0), {"id": name}, {"table": table, "row": row})


def expected(case: OutputCase, events: list[Read]) -> list[Read]:
    """Those of ``events`` that the output shows: all, or of each row the last."""
    if not isinstance(case, SearchCase):
        return events
    found: dict[str, Read] = {}
    for event in events:
        table, row = event.value["table"], event.value.get("row")
        if event.value["op"] == "t":
            found = {name: one for name, one in found.items() if one.value["table"] != table}
        found.pop(event.of_row, None)
        if row is not None:
            document = {"table": table, "row": row}
            found[event.of_row] = Read((event.order[0], 0), event.key, document)
    return list(found.values())


def with_parts(values: Iterable[Mapping[str, Any]]) -> Iterator[Read]:
    """Events by their JSON: the update of a key has the sequence of the delete before it."""
    last: tuple[int, int] = (0, 0)
    for value in values:
        again = value["op"] == "u" and last == (value["seq"], 0)
        last = (value["seq"], int(again))
        yield Read(last, value.get("key"), value)


def _entry(entry_id: str, fields: Mapping[str, str]) -> Read:
    seq, _, part = entry_id.partition("-")
    key = json.loads(fields["key"]) if "key" in fields else None
    return Read((int(seq), int(part)), key, json.loads(fields["value"]))


def _outbox_entry(route: str, entry_id: str, fields: Mapping[str, str]) -> OutboxRead:
    seq, _, part = entry_id.partition("-")
    headers = {
        name.removeprefix("header:"): value
        for name, value in fields.items()
        if name.startswith("header:")
    }
    return OutboxRead((int(seq), int(part)), route, fields["key"], headers, fields.get("value"))


def consumer_of(server: KafkaServer, isolation: str = "read_committed") -> Consumer:
    """A consumer of what is committed, or of all."""
    return Consumer(
        {
            "bootstrap.servers": server.address,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
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
