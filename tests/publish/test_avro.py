"""Avro in Kafka, at a real broker and a registry that checks what it is asked: whole, once, and in
the way of nothing but itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devtools.services.kafka import KafkaServer
from devtools.services.schema_registry import SchemaRegistryServer
from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.mysql_servers import Flavour, MysqlDatabase
from tests.fixtures.parts import Row, Shaped, schema_of
from tests.fixtures.publishing import Read, published
from tests.fixtures.services import Database
from tests.publish.debezium import mariadb_workload, postgres_workload
from tests.publish.outputs import KafkaCase
from tests.publish.rig import TABLES, Rig
from tests.support.avro_reader import AvroReader, Ids, event_as_json
from tideline.contract.publishing import ChainPosition
from tideline.planner.publisher_status import PublisherState, PublisherStatus, publisher_statuses
from tideline.settings import PublishSettings, Settings, load_settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.feed import ChainFeed
from tideline_publish.formats.avro.format import AvroFormat, record_subject
from tideline_publish.formats.json import JsonFormat
from tideline_publish.outbox.encoding import Outbox
from tideline_publish.selection import Selection

MISCONFIGURED = 2
T = TABLES[0]


@dataclass
class AvroCase(KafkaCase):
    """Events in Avro. ``avro`` are more of its settings."""

    registry: SchemaRegistryServer = field(default_factory=SchemaRegistryServer)
    avro: dict[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        avro = {"registry": self.registry.url, "timeout_s": 0.3, **self.avro}
        return {**super().settings(), "format": "avro", "avro": avro}

    def events(self) -> list[Read]:
        reader = AvroReader(self.registry.schemas)
        found = []
        for message in self._messages():
            seq, _, part = dict(message.headers())["tl_seq"].decode().partition(".")
            value = event_as_json(reader, message.value())
            key = None if message.key() is None else reader.as_json(message.key())
            if value["op"] != "t" or message.partition() == 0:
                found.append(Read((int(seq), int(part or 0)), key, value))
        return found


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as registry:
        yield registry


@pytest.fixture
def output(kafka: KafkaServer, registry: SchemaRegistryServer) -> AvroCase:
    return AvroCase(kafka, transactions=True, registry=registry)


def status_of(rig: Rig) -> PublisherStatus:
    settings = load_settings(rig.config)
    tail = rig.history.chain.tail()
    assert tail is not None
    now_us = RealSystem().wall_us()
    (found,) = publisher_statuses(settings, rig.history.store, tail.manifest, now_us)
    return found


def test_every_change_arrives_once_though_it_is_killed(tmp_path: Path, output: AvroCase) -> None:
    rig = Rig(tmp_path, output)
    for point in ("after_write", "after_settle"):
        rig.publish_until_killed(point, 2)
    rig.commit(5)  # The last of them has a truncate.
    rig.publish()
    rig.check()
    prefix = f"{output.prefix}.public"
    names = (f"{prefix}.orders", f"{prefix}.Order_x20_Items")
    wanted = {f"{name}-{role}" for name in names for role in ("key", "value")}
    assert set(output.registry.subjects) == wanted


def test_a_registry_that_is_away_is_waited_for(tmp_path: Path, output: AvroCase) -> None:
    rig = Rig(tmp_path, output)
    output.registry.stop()
    rig.commit(2)
    worker = rig.worker()
    poll("it waits", lambda: status_of(rig).state is PublisherState.WAITING)
    reason = status_of(rig).reason
    assert reason is not None
    assert "the schema registry 127.0.0.1" in reason
    assert output.events() == []
    output.registry.start()
    poll("it is published", rig.is_published)
    poll("it waits for nothing", lambda: status_of(rig).state is PublisherState.PUBLISHING)
    assert status_of(rig).reason is None
    worker.terminate()
    rig.check()


@pytest.mark.parametrize(
    ("status", "text"), [(409, "not compatible"), (401, "may not"), (422, "not valid")]
)
def test_one_that_refuses_blocks_it_and_nothing_is_skipped(
    tmp_path: Path, output: AvroCase, status: int, text: str
) -> None:
    rig = Rig(tmp_path, output)
    rig.commit(1)
    rig.publish()
    rig.history.commit(
        Shaped(schema_of(T, {"id": "int32", "note": "string", "more": "string"}, ["id"]))
    )
    rig.commit(2)
    output.registry.fault = lambda _, path: status if "orders-value" in path else 0
    worker = rig.worker()
    assert worker.wait() == MISCONFIGURED, worker.output()
    found = status_of(rig)
    assert found.state is PublisherState.BLOCKED
    assert found.reason is not None
    assert f"refuses the subject {output.prefix}.public.orders-value" in found.reason
    assert text in found.reason
    before = len(output.events())
    rig.commit(2)  # Capture goes on.
    output.registry.fault = lambda *_: 0
    rig.publish()
    rig.check()
    assert len(output.events()) > before
    assert status_of(rig).state is PublisherState.STOPPED


def test_columns_that_come_and_go_are_compatible_in_both_directions(
    tmp_path: Path, output: AvroCase
) -> None:
    output.registry.compatibility = "FULL"
    rig = Rig(tmp_path, output)
    rig.commit(1)
    for columns in ({"note": "string", "more": "decimal(9,2)"}, {"more": "decimal(9,2)"}):
        rig.history.commit(Shaped(schema_of(T, {"id": "int32", **columns}, ["id"])))
        rig.history.commit(Row(T, "c", {"id": 1}), Row(T, "d", {"id": 1}))
    rig.publish()
    rig.check()
    assert len(output.registry.subjects[f"{output.prefix}.public.orders-value"]) == 3


def test_a_type_that_readers_cannot_read_is_refused(tmp_path: Path, output: AvroCase) -> None:
    output.registry.compatibility = "FULL"
    rig = Rig(tmp_path, output)
    rig.commit(1)
    rig.history.commit(Shaped(schema_of(T, {"id": "int32", "note": "int64"}, ["id"])))
    rig.history.commit(Row(T, "c", {"id": 9, "note": 9}))
    worker = rig.worker()
    assert worker.wait() == MISCONFIGURED
    assert "not compatible" in (status_of(rig).reason or "")
    output.registry.compatibility = "NONE"
    rig.publish()
    rig.check()


def test_subjects_by_the_records_name(tmp_path: Path, output: AvroCase) -> None:
    output.avro = {"subjects": "record"}
    rig = Rig(tmp_path, output, tables=[T])
    rig.history.commit(Row(T, "c", {"id": 1, "note": "a"}))
    rig.publish()
    assert len(output.events()) == len(published(rig.history, tables=[T])) == 1
    wanted = {f"shop.public.orders.{name}" for name in ("Event", "Key")}
    assert set(output.registry.subjects) == wanted


def events_of(settings: Settings, form: JsonFormat | AvroFormat) -> list[ChangeEvent]:
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    assert tail is not None
    begin = ChainPosition(tail.manifest.incarnation, 0, 0)
    chosen = PublishSettings(output="null")
    outbox = Outbox(settings.pipeline, chosen)
    feed = ChainFeed(store, chain, form, Selection(chosen), begin, outbox)
    return [event for batch in feed.batches() for event in batch.events]


def check_types(pipeline: Pipeline[Any], logged: tuple[str, ...]) -> None:
    """Every event of the pipeline has in Avro what it has in JSON."""
    pipeline.drain()
    pipeline.database.run(*logged)
    pipeline.drain()
    ids = Ids()
    wanted = events_of(pipeline.settings, JsonFormat())
    found = events_of(pipeline.settings, AvroFormat("shop", ids, record_subject))
    reader = AvroReader(ids.schemas)
    assert len(found) == len(wanted) > 30
    for event, other in zip(found, wanted, strict=True):
        assert event.value is not None and other.value is not None
        assert event_as_json(reader, event.value) == json.loads(other.value)
        assert (event.key is None) == (other.key is None)
        if event.key is not None and other.key is not None:
            assert reader.as_json(event.key) == json.loads(other.key)


def test_every_type_of_postgresql(own_database: Database, pipeline_of: PipelineFactory) -> None:
    own_database.run(*postgres_workload.SETUP, *postgres_workload.DUMPED)
    tables = {"public.imaged": {"before_image": "full"}}
    check_types(pipeline_of(own_database, tables=tables), postgres_workload.LOGGED)


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_every_type_of_mariadb(
    flavour: Flavour, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    mysql_database.run(*mariadb_workload.SETUP, *mariadb_workload.DUMPED)
    tables = {f"{mysql_database.name}.*": {"before_image": "full"}}
    check_types(pipeline_of(mysql_database, tables=tables), mariadb_workload.LOGGED)
