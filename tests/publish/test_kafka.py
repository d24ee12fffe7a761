"""Kafka as an output with something in its way: what stops it by name, and what it waits for."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import WorkerProcess, poll
from tests.fixtures.parts import Row, Shaped, schema_of
from tests.fixtures.publishing import BEGINNING, NAME, published
from tests.publish.outputs import KafkaCase
from tests.publish.rig import TABLES, Rig
from tideline.contract.errors import Misconfigured
from tideline.planner.publisher_status import PublisherState, PublisherStatus, publisher_statuses
from tideline.settings import PublishSettings, load_settings
from tideline.store.publisher_log import PublisherLog
from tideline.system import RealSystem
from tideline_publish.events import ChangeEvent
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.kafka import topics
from tideline_publish.outputs.kafka.output import KafkaOutput

MISCONFIGURED = 2
T = TABLES[0]
MiB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaServer]:
    """One of this test's own."""
    with KafkaServer(tmp_path / "broker") as server:
        yield server


def test_a_broker_whose_second_port_was_taken_meanwhile_starts(tmp_path: Path) -> None:
    """Under load a program that draws ports may be faster than Java is."""
    server = KafkaServer(tmp_path / "broker")
    with socket.socket() as other:
        other.bind(("127.0.0.1", server._controller_port))
        other.listen()
        with server:
            assert server.running


def case_of(server: KafkaServer, transactions: bool = True, **kafka: object) -> KafkaCase:
    return KafkaCase(server, transactions, more={"timeout_s": 1, **kafka})


def status_of(rig: Rig) -> PublisherStatus:
    settings = load_settings(rig.config)
    tail = rig.history.chain.tail()
    assert tail is not None
    now_us = RealSystem().wall_us()
    (found,) = publisher_statuses(settings, rig.history.store, tail.manifest, now_us)
    return found


def blocked(rig: Rig) -> str:
    """Run a worker, which is to stop at something; why it has."""
    worker = rig.worker()
    assert worker.wait() == MISCONFIGURED, worker.output()
    found = status_of(rig)
    assert found.state is PublisherState.BLOCKED
    assert found.reason is not None
    return found.reason


def make_topic(server: KafkaServer, name: str, **config: str) -> None:
    client = AdminClient({"bootstrap.servers": server.address})
    client.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)


@pytest.mark.parametrize("transactions", [True, False])
def test_a_record_that_is_too_large_blocks_it_until_it_is_allowed(
    tmp_path: Path, kafka: KafkaServer, transactions: bool
) -> None:
    output = case_of(kafka, transactions, record_bytes_max=2_000)
    rig = Rig(tmp_path, output)
    rig.history.commit(Row(T, "c", {"id": 1, "note": "a"}))
    rig.history.commit(Row(T, "c", {"id": 2, "note": "canary" * 1_000}))
    rig.history.commit(Row(T, "c", {"id": 3, "note": "c"}))
    reason = blocked(rig)
    assert f"change {rig.history.last_seq - 1} of {T}" in reason
    assert "canary" not in reason
    rig.commit(1)  # Capture goes on.
    output.more["record_bytes_max"] = 100_000
    rig.configure()
    rig.publish()
    rig.check()


def test_a_topic_that_is_missing_blocks_it_until_it_is_there(
    tmp_path: Path, kafka: KafkaServer
) -> None:
    output = case_of(kafka, make_topics=False)
    rig = Rig(tmp_path, output)
    rig.history.commit(Row(T, "c", {"id": 1, "note": "a"}))
    topic = f"{output.prefix}.public.orders"
    assert blocked(rig) == f"Kafka has no topic {topic}"
    rig.history.commit(Row(T, "c", {"id": 2, "note": "b"}))
    make_topic(kafka, topic)
    rig.publish()
    rig.check()
    assert status_of(rig).state is PublisherState.STOPPED


@pytest.mark.parametrize("transactions", [True, False])
def test_a_record_that_the_broker_refuses_blocks_it(
    tmp_path: Path, kafka: KafkaServer, transactions: bool
) -> None:
    """A compacted topic takes no record without a key, however often it is sent."""
    output = case_of(kafka, transactions)
    topic = f"{output.prefix}.public.keyless"
    make_topic(kafka, topic, **{"cleanup.policy": "compact"})
    rig = Rig(tmp_path, output, tables=["public.*"])
    rig.history.commit(Shaped(schema_of("public.keyless", {"note": "string"}, [])))
    rig.history.commit(Row("public.keyless", "c", {"note": "canary"}))
    reason = blocked(rig)
    assert reason == f"Kafka refuses to take events for {topic}: INVALID_RECORD"
    assert "canary" not in reason


@pytest.mark.parametrize("away", ["stopped", "frozen"])
@pytest.mark.parametrize("transactions", [True, False])
def test_a_broker_that_is_away_is_waited_for_by_the_same_worker(
    tmp_path: Path, broker: KafkaServer, transactions: bool, away: str
) -> None:
    output = case_of(broker, transactions)
    rig = Rig(tmp_path, output, takeover_after_s=4.0)
    first = rig.worker()
    rig.commit(1)
    poll("it is published", rig.is_published)
    second = rig.worker()
    second.wait_output("another worker publishes")
    broker.stop() if away == "stopped" else os.kill(broker.pid, signal.SIGSTOP)
    try:
        rig.commit(3)
        poll("it waits", lambda: status_of(rig).state is PublisherState.WAITING)
        assert "Kafka" in (status_of(rig).reason or "")
        tried(first, 3)
        rig.commit(3)  # Capture goes on.
    finally:
        broker.start() if away == "stopped" else os.kill(broker.pid, signal.SIGCONT)
    poll("it is published", rig.is_published)
    poll("it waits for nothing", lambda: status_of(rig).state is PublisherState.PUBLISHING)
    assert not first.ended(), first.output()
    assert " publishing " not in second.output()
    second.terminate()
    first.terminate()
    rig.check()


def test_a_worker_that_is_stopped_while_brokers_are_away_is_not_blocked(
    tmp_path: Path, broker: KafkaServer
) -> None:
    rig = Rig(tmp_path, case_of(broker))
    rig.commit(1)
    broker.stop()
    worker = rig.worker()
    tried(worker, 2)
    assert status_of(rig).state is PublisherState.WAITING
    worker.terminate()
    found = status_of(rig)
    assert (found.state, found.reason) == (PublisherState.STOPPED, None)
    broker.start()
    rig.publish()
    rig.check()


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("begun", [True, False])
def test_a_stop_waits_for_no_broker_that_is_away(
    tmp_path: Path, broker: KafkaServer, transactions: bool, begun: bool
) -> None:
    """A supervisor kills what has not stopped by itself after some time."""
    rig = Rig(tmp_path, case_of(broker, transactions, timeout_s=300))
    worker = rig.worker() if begun else None
    if begun:
        rig.commit(1)
        poll("it is published", rig.is_published)
    broker.stop()
    rig.commit(1)
    worker = worker or rig.worker()
    behind = rig.entry().number if begun else 0
    poll("it waits, and is alive", lambda: status_number(rig) > behind + 5)
    worker.signal(signal.SIGTERM)
    assert worker.wait(20.0) == 0, worker.output()
    assert status_of(rig).state is PublisherState.STOPPED
    broker.start()
    rig.publish()
    rig.check()


def status_number(rig: Rig) -> int:
    """How many entries the log of positions has; 0 before there is one."""
    settings = load_settings(rig.config)
    newest = PublisherLog(rig.history.store, settings.pipeline, NAME).newest()
    return 0 if newest is None else newest.number


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"security_protocol": "ssl"},
            ("SSL connection closed by peer", "kafka.security_protocol"),
        ),
        (
            {"security_protocol": "sasl_plaintext", "user": "ada", "password": "canary"},
            ("SASL SCRAM-SHA-512", "kafka.user"),
        ),
        ({"servers": ["127.0.0.1:1"]}, ("127.0.0.1:1 failed: Connection refused", "brokers run")),
        ({"servers": ["nowhere.invalid:1"], "security_protocol": "ssl"}, ("resolve", "servers")),
    ],
)
def test_why_brokers_are_not_reached_is_told(
    tmp_path: Path, kafka: KafkaServer, settings: dict[str, Any], told: tuple[str, str]
) -> None:
    """Each is a mistake of somebody who sets a publisher up."""
    rig = Rig(tmp_path, case_of(kafka, **settings))
    rig.commit(1)
    worker = rig.worker()
    tried(worker, 1)
    line = next(one for one in worker.output().splitlines() if "interrupted" in one)
    poll("it waits", lambda: status_of(rig).state is PublisherState.WAITING)
    worker.terminate()
    assert all(text in line for text in told), line
    assert "canary" not in worker.output()
    assert "state " not in line  # The same text with each try.


def test_a_password_that_is_refused_is_told_and_not_shown(tmp_path: Path) -> None:
    users = 'username="broker" password="right" user_broker="right" user_ada="right"'
    module = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    listener = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": module,
    }
    login = {"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN", "user": "ada"}
    with KafkaServer(tmp_path / "broker", settings=listener) as server:
        output = case_of(server, False, **login, password="canary")
        rig = Rig(tmp_path, output)
        rig.commit(1)
        worker = rig.worker()
        poll("it is told", lambda: "kafka.password_file" in worker.output())
        assert status_of(rig).state is PublisherState.WAITING
        assert "canary" not in worker.output()
        worker.terminate()
        output.more["password"] = "right"
        rig.configure()
        rig.publish()


def tried(worker: WorkerProcess, times: int) -> None:
    """Return once it has begun again so often."""

    def interrupted() -> bool:
        assert not worker.ended(), worker.output()
        return worker.output().count("publishing is interrupted") >= times

    poll("it tries again", interrupted)


@pytest.mark.long
@pytest.mark.parametrize("transactions", [True, False])
def test_a_broker_that_is_away_for_long_costs_no_memory(
    tmp_path: Path, broker: KafkaServer, transactions: bool
) -> None:
    """Thirty tries, which take the default settings a quarter of an hour; half a gigabyte of events
    waits in the chain."""
    output = case_of(broker, transactions)
    rig = Rig(tmp_path, output)
    worker = rig.worker()
    rig.commit(1)
    poll("it is published", rig.is_published)
    broker.stop()
    for number in range(64):
        rows = [Row(T, "c", {"id": at, "note": f"{number}{at}" * 2_000}) for at in range(1_000)]
        rig.history.commit(*rows)
    tried(worker, 10)
    before = psutil.Process(worker.pid).memory_info().rss
    poll("it tries", lambda: worker.output().count("interrupted") >= 30, timeout_s=400)
    grown = psutil.Process(worker.pid).memory_info().rss - before
    assert grown < 32 * MiB
    assert before < 700 * MiB
    broker.start()
    poll("it is published", rig.is_published, timeout_s=300)
    worker.terminate()
    assert len(output.events()) >= len(published(rig.history))


def test_a_transaction_that_the_brokers_give_up_is_named(kafka: KafkaServer) -> None:
    """It ends the publisher by name, not as if another had taken its place."""
    values = case_of(kafka, transaction_timeout_s=1).settings()
    settings = PublishSettings.model_validate(values)
    output = KafkaOutput(OutputContext("shop", "slow", settings, RealSystem(), lambda _: True))
    output.open(BEGINNING)
    named: list[Misconfigured] = []

    def is_refused() -> bool:
        try:
            output.write([ChangeEvent(1, 0, T, "c", 7, 0, b"{}", b"{}")])
        except Misconfigured as error:
            named.append(error)
        return bool(named)

    poll("it is given up", is_refused)
    output.close()
    assert "given a transaction up after kafka.transaction_timeout_s (1 s)" in named[0].message
    # The next session is another transaction.
    output.open(BEGINNING)
    output.write([ChangeEvent(1, 0, T, "c", 7, 0, b"{}", b"{}")])
    output.settle(BEGINNING)
    output.close()


def test_a_time_that_the_brokers_do_not_allow_is_named(tmp_path: Path, kafka: KafkaServer) -> None:
    rig = Rig(tmp_path, case_of(kafka, transaction_timeout_s=901))
    reason = blocked(rig)
    assert "INVALID_TRANSACTION_TIMEOUT" in reason


def test_a_topic_that_kafka_takes_for_another_is_refused_by_name(kafka: KafkaServer) -> None:
    case = KafkaCase(kafka, transactions=True)
    settings = PublishSettings.model_validate(case.settings())
    output = KafkaOutput(OutputContext("shop", "e", settings, RealSystem(), lambda _: True))
    output.open(BEGINNING)
    output.write([ChangeEvent(1, 0, "a.b_c", "c", 7, 0, b"{}", b"{}")])
    with pytest.raises(Misconfigured, match=rf"makes no topic {case.prefix}\.a_b\.c"):
        output.write([ChangeEvent(2, 0, "a_b.c", "c", 7, 0, b"{}", b"{}")])
    output.close()


def test_topics_are_asked_for_by_one_client(
    kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def client(settings: dict[str, Any]) -> AdminClient:
        made.append(settings)
        return AdminClient(settings)

    monkeypatch.setattr(topics, "AdminClient", client)
    settings = PublishSettings.model_validate(KafkaCase(kafka, transactions=True).settings())
    output = KafkaOutput(OutputContext("shop", "e", settings, RealSystem(), lambda _: True))
    output.open(BEGINNING)
    output.write([ChangeEvent(1, 0, table, "c", 7, 0, b"{}", b"{}") for table in TABLES])
    output.settle(BEGINNING)
    output.close()
    assert len(made) == 1
