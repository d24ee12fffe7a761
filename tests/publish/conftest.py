"""The servers of outputs, one of each for the whole run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.services.kafka import KafkaServer
from devtools.services.kinesis import KinesisServer
from devtools.services.search_stand_in import SearchServer
from tests.fixtures.publishing import SkippedPauses
from tests.publish.outputs import (
    FilesCase,
    KafkaCase,
    KinesisCase,
    OutboxCase,
    OutputCase,
    ParquetCase,
    RedisCase,
    SearchCase,
    WebhookCase,
)
from tests.support.webhook_server import WebhookServer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One broker. Tests that stop or kill it have their own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


OUTPUTS = (
    "files",
    "parquet files",
    "kafka",
    "kafka without transactions",
    "redis",
    "redis with one stream",
    "webhook",
    "kinesis",
)


@pytest.fixture
def kinesis() -> Iterator[KinesisServer]:
    """Kinesis, with no stream."""
    with KinesisServer() as server:
        yield server


@pytest.fixture
def search() -> Iterator[SearchServer]:
    """A search cluster, with no index."""
    with SearchServer() as server:
        yield server


@pytest.fixture
def endpoint() -> Iterator[WebhookServer]:
    """An endpoint of webhooks."""
    with WebhookServer() as server:
        yield server


@pytest.fixture
def pauses() -> SkippedPauses:
    """How an output waits: not at all."""
    return SkippedPauses()


@pytest.fixture(params=[*OUTPUTS, "opensearch"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> OutputCase:
    """Each of the outputs."""
    if request.param == "opensearch":
        return SearchCase(request.getfixturevalue("search"))
    return _case(request.param, request, tmp_path)


@pytest.fixture(params=OUTPUTS)
def outbox_output(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxCase:
    """Each of the outputs that carry an outbox's events."""
    return _case(request.param, request, tmp_path)


def _case(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> OutboxCase:
    if name == "files":
        return FilesCase(tmp_path / f"events-{uuid.uuid4().hex[:8]}")
    if name == "parquet files":
        return ParquetCase(tmp_path / f"events-{uuid.uuid4().hex[:8]}")
    if name.startswith("redis"):
        valkey = request.getfixturevalue("valkey")
        return RedisCase(valkey, order_of_all=name == "redis with one stream")
    if name == "kinesis":
        return KinesisCase(request.getfixturevalue("kinesis"))
    if name == "webhook":
        return WebhookCase(request.getfixturevalue("endpoint"))
    server: KafkaServer = request.getfixturevalue("kafka")
    return KafkaCase(server, transactions=name == "kafka")
