"""Measures what publishing costs, from parts in the store to the output, next to Debezium."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil
from confluent_kafka import Consumer, TopicPartition

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import cpu_s
from devtools.benchmarks.follow_rig import until
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle
from devtools.services.debezium import POSTGRES, DebeziumServer
from devtools.services.kafka import KafkaServer
from devtools.services.schema_registry import SchemaRegistryServer
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline.store.publisher_log import PublisherLog
from tideline_publish.app import run_publisher

NAME = "publish_throughput"
_IDLE_S = 0.3
_WORKLOAD = "inserts in transactions of 1,000"
_PREFIX = "debezium"
_JAVA = ("-Xmx1g",)
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class _Cost:
    """Events, and what they cost."""

    events: int
    cpu_s: float
    wall_s: float

    @property
    def per_cpu_s(self) -> float:
        """The events of a CPU second."""
        return self.events / self.cpu_s


def run(rows: int) -> Iterator[Result]:
    """Publish ``rows`` inserted rows to each output, and have Debezium bring the same to Kafka."""
    with (
        rig() as server,
        KafkaServer(server.folder / "kafka") as kafka,
        SchemaRegistryServer() as registry,
    ):
        orders.create(server.cursor)
        publishers = _publishers(kafka, registry, server.folder)
        settings = server.settings(publish=publishers)
        run_until_idle(settings)
        with _debezium(server, kafka) as debezium:
            until("Debezium reads the log", lambda: _reads(server))
            begun = _java_s(debezium), time.perf_counter()
            orders.insert_in_bulk(server.cursor, rows)
            until("Debezium has brought all rows", lambda: _records(kafka, _PREFIX) >= rows)
            other = _Cost(rows, _java_s(debezium) - begun[0], time.perf_counter() - begun[1])
        run_until_idle(settings)
        for name in publishers:
            yield from _lines(name, _published(settings, name, rows), other)
        for name in ("kafka_json", "kafka_debezium", "kafka_avro"):
            _assert_all(kafka, name, rows)


def _publishers(
    kafka: KafkaServer, registry: SchemaRegistryServer, folder: Path
) -> dict[str, dict[str, Any]]:
    avro = {"format": "avro", "avro": {"registry": registry.url}}
    return {
        "null_json": {"output": "null"},
        "null_debezium": {"output": "null", "format": "debezium"},
        "null_avro": {"output": "null", **avro},
        "files_json": {"output": "files", "files": {"folder": str(folder / "lines")}},
        "kafka_json": _to_kafka(kafka, "kafka_json"),
        "kafka_debezium": _to_kafka(kafka, "kafka_debezium", format="debezium"),
        "kafka_avro": _to_kafka(kafka, "kafka_avro", **avro),
    }


def _to_kafka(kafka: KafkaServer, prefix: str, **others: Any) -> dict[str, Any]:
    section = {
        "servers": [kafka.address],
        "security_protocol": "plaintext",
        "topic": f"{prefix}.{{schema}}.{{table}}",
        "make_topics": True,
    }
    return {"output": "kafka", "kafka": section, **others}


def _published(settings: Settings, name: str, rows: int) -> _Cost:
    """Run a publisher to the chain's end: its CPU is that of all its threads, and has its start."""
    cpu, wall = time.process_time(), time.perf_counter()
    run_publisher(settings, name, until_idle_s=_IDLE_S)
    cost = _Cost(rows, time.process_time() - cpu, time.perf_counter() - wall - _IDLE_S)
    entry = PublisherLog(open_store(settings.store), settings.pipeline, name).newest()
    published = 0 if entry is None else entry.events
    if published != rows:
        raise AssertionError(f"{name} published {published} of {rows} events")
    return cost


def _lines(name: str, cost: _Cost, other: _Cost) -> Iterator[Result]:
    goal = {"null": "≥ 100,000", "kafka": "≥ 40,000"}.get(name.partition("_")[0], "")
    workload = f"{_WORKLOAD}, {name.replace('_', ', ')}"
    for metric, value, base in (
        ("events per CPU second", cost.per_cpu_s, other.per_cpu_s),
        ("events per second (wall)", cost.events / cost.wall_s, other.events / other.wall_s),
    ):
        yield result(
            NAME,
            workload,
            metric,
            value=(value, "1/s"),
            baseline=("Debezium in Connect, to Kafka", base),
            goal=goal if "CPU" in metric else "",
        )


def _assert_all(kafka: KafkaServer, prefix: str, rows: int) -> None:
    found = _records(kafka, prefix)
    if found < rows:  # Markers of transactions have offsets, too.
        raise AssertionError(f"{prefix}: {found} of {rows} records are in Kafka")


def _records(kafka: KafkaServer, prefix: str) -> int:
    """Return how many offsets the topic of the table has."""
    topic = f"{prefix}.public.orders"
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": "count", "log_level": 0})
    try:
        about = consumer.list_topics(topic, 30).topics[topic]
        ends = (
            consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)[1]
            for partition in about.partitions
        )
        return sum(ends)
    finally:
        consumer.close()


def _debezium(server: CaptureRig, kafka: KafkaServer) -> DebeziumServer:
    """Return a connector that reads the log from its start on, by its defaults, without schemas."""
    url = urlsplit(server.dsn)
    settings: Mapping[str, str] = {
        "database.hostname": url.hostname or "",
        "database.port": str(url.port),
        "database.user": url.username or "",
        "database.password": unquote(url.password or ""),
        "database.dbname": "shop",
        "schema.include.list": "public",
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "no_data",
        "topic.prefix": _PREFIX,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "key.converter": _JSON,
        "value.converter": _JSON,
    }
    folder = server.folder / "debezium"
    return DebeziumServer(folder, POSTGRES, kafka.address, settings, java=_JAVA)


def _reads(server: CaptureRig) -> bool:
    server.cursor.execute("SELECT active FROM pg_replication_slots WHERE slot_name = 'debezium'")
    found: list[tuple[bool]] = server.cursor.fetchall()
    return found == [(True,)]


def _java_s(server: DebeziumServer) -> float:
    return cpu_s([psutil.Process(server.pid)])
