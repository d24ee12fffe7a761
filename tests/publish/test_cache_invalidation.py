"""Two instances of an application with caches, and someone who writes plain SQL beside them.

The whole line is real: PostgreSQL, the worker, a publisher, Kafka, SQLAlchemy.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from confluent_kafka import Consumer
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from devtools.services.kafka import KafkaServer
from tests.fixtures.capture import QUICK, Pipeline, WorkerProcess, poll
from tests.fixtures.publishing import NAME
from tests.fixtures.services import Database
from tests.fixtures.settings import ConfigFactory
from tideline.consumer import CacheInvalidator, OwnTransactions, note_transactions

TOPIC = "orders.events"


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str]


class Shop:
    """An instance of the application: it reads through its cache, and writes it when it commits."""

    def __init__(self, dsn: str, kafka: KafkaServer) -> None:
        engine = sa.create_engine(dsn.replace("postgresql://", "postgresql+psycopg2://"))
        self.sessions = sessionmaker(engine)
        self.cache: dict[int, str] = {}
        self.evicted: list[int] = []
        own = OwnTransactions()
        note_transactions(self.sessions, own)
        self._invalidator = CacheInvalidator(lambda _table, key: self._evict(key), own)
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka.address,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([TOPIC])
        self.handled: set[int] = set()

    def _evict(self, key: object) -> None:
        assert isinstance(key, dict)
        self.evicted.append(key["id"])
        self.cache.pop(key["id"], None)

    def read(self, order: int) -> str:
        if order not in self.cache:
            with self.sessions() as session:
                self.cache[order] = session.get_one(Order, order).status
        return self.cache[order]

    def write(self, order: int, status: str) -> None:
        with self.sessions.begin() as session:
            session.merge(Order(id=order, status=status))
        self.cache[order] = status

    def listen(self) -> int:
        """Handle what has come; return how many events there were in all."""
        message: Any = self._consumer.poll(0.05)
        if message is not None and message.error() is None:
            self._invalidator.handle(message.value())
            self.handled.add(json.loads(message.value())["seq"])
        return len(self.handled)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def running(
    database: Database, config_for: ConfigFactory, kafka: KafkaServer, tmp_path: Path
) -> Iterator[None]:
    database.run("CREATE TABLE orders (id int PRIMARY KEY, status text)")
    settings = {
        "servers": [kafka.address],
        "security_protocol": "plaintext",
        "topic": TOPIC,
        "positions_topic": f"positions.{uuid.uuid4().hex[:8]}",
        "make_topics": True,
    }
    publisher = {"output": "kafka", "poll_interval_s": 0.02, "kafka": settings}
    config = config_for(database, capture=QUICK, publish={NAME: publisher})
    pipeline = Pipeline(database, config, tmp_path)
    worker = pipeline.start()
    publishing = WorkerProcess(config, tmp_path, until_idle_s=None, deadly={}, publisher=NAME)
    worker.wait_output("captures a table")
    publishing.wait_output("publishing")
    yield
    publishing.terminate()
    pipeline.close()


def test_what_others_wrote_is_read_again_and_what_one_wrote_itself_is_not(
    running: None, database: Database, kafka: KafkaServer
) -> None:
    first, second = Shop(database.dsn, kafka), Shop(database.dsn, kafka)

    def wait(events: int) -> None:
        poll("they have heard", lambda: min(one.listen() for one in (first, second)) >= events)

    first.write(1, "new")
    wait(1)
    assert (first.read(1), second.read(1)) == ("new", "new")
    second.write(1, "paid")
    wait(2)
    assert (first.read(1), second.read(1)) == ("paid", "paid")
    # Each dropped what the other one wrote, and nothing else.
    assert (first.evicted, second.evicted) == ([1], [1])
    database.run("UPDATE orders SET status = 'stolen'")
    wait(3)
    assert (first.read(1), second.read(1)) == ("stolen", "stolen")
    assert (first.evicted, second.evicted) == ([1, 1], [1, 1])
    first.close()
    second.close()
