"""Events as records of Kafka, by librdkafka.

With transactions, what is settled together is one transaction of Kafka's, the publisher's position
among it: a record in a compacted topic. A later producer of the same transactional id fences an
earlier one, so that each event is there once for consumers that read what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tideline.contract.errors import Misconfigured, TidelineError
from tideline.contract.publishing import ChainPosition
from tideline.contract.schema import parse_table
from tideline_publish.events import TRUNCATED, ChangeEvent
from tideline_publish.outputs.base import OrderScope, OutputContext
from tideline_publish.outputs.kafka.client import client_settings
from tideline_publish.outputs.kafka.errors import ENDED, TOO_LARGE, asking, explained
from tideline_publish.outputs.kafka.positions import committed_position
from tideline_publish.outputs.kafka.topics import Topics
from tideline_publish.outputs.kafka.waiting import BrokerWait
from tideline_publish.outputs.names import topic_of

_TAKE_AGAIN_S = 0.1
Headers = list[tuple[str, str | bytes | None]]


class KafkaOutput:
    """See `Output`."""

    def __init__(self, context: OutputContext) -> None:
        pipeline, publisher, settings = context.pipeline, context.publisher, context.settings.kafka
        self._wait = BrokerWait(context)
        self._topics = Topics(settings, self._wait)
        self._name = f"{pipeline}.{publisher}"
        self._pipeline = pipeline
        self._settings = settings
        self._producer: Producer | None = None
        self._places: dict[tuple[str, str], tuple[str, int]] = {}
        self._monotonic = context.system.monotonic
        self._begun = False
        self._begun_at = 0.0
        self._failure: KafkaError | None = None
        self._failed_at = ""
        self.order = OrderScope.KEY
        self.record_bytes_max: int | None = settings.record_bytes_max
        self.keeps_position = settings.transactions
        self.whole_only = settings.transactions
        self.gathers_s = 0.0
        self.dead_letters = 0

    def open(self, logged: ChainPosition) -> ChainPosition:
        """See `Output`."""
        self.close()
        self._failure = None
        if not self._settings.transactions:
            self._producer = Producer(self._producer_settings())
            return logged
        with asking("to begin as its producer"):
            self._topics.ensure(self._settings.positions_topic, partitions=1, compacted=True)
            self._producer = Producer(self._producer_settings())
            self._wait.ask(self._producer.init_transactions)
            own = committed_position(self._settings, self._name, self._wait)
        if own is None or (own.epoch, own.incarnation) != (logged.epoch, logged.incarnation):
            return logged
        return max(own, logged, key=lambda one: (one.manifest_number, one.seq))

    def write(self, events: Sequence[ChangeEvent]) -> None:
        """See `Output`."""
        if not events:
            return
        producer = self._opened()
        with asking("to take events"), self._in_time():
            if self._settings.transactions and not self._begun:
                producer.begin_transaction()
                self._begun, self._begun_at = True, self._monotonic()
            for event in events:
                self._produce(producer, event)
            producer.poll(0)
            self._check()

    def settle(self, position: ChainPosition) -> None:
        """See `Output`."""
        producer = self._opened()
        with asking("to make events durable"), self._in_time():
            if self._settings.transactions:
                self._commit(producer, position)
            else:
                self._wait.await_(lambda seconds: not producer.flush(seconds))
            self._check()

    def close(self) -> None:
        """See `Output`."""
        producer, begun = self._producer, self._begun
        self._producer, self._begun = None, False
        if producer is not None:
            with suppress(KafkaException, TidelineError):
                producer.purge()
                if begun:  # Else consumers would wait for its end.
                    self._wait.brief(producer.abort_transaction)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Raise Misconfigured where the brokers have given the transaction up: they then refuse
        this producer as they do one whose place another has taken."""
        try:
            yield
        except (KafkaException, TidelineError) as error:
            found = error.args[0] if isinstance(error, KafkaException) else self._failure
            timeout_s = self._settings.transaction_timeout_s
            within = not self._begun or self._monotonic() - self._begun_at < timeout_s
            if within or found is None or found.code() not in ENDED:
                raise
            raise Misconfigured(
                f"Kafka has given a transaction up after kafka.transaction_timeout_s"
                f" ({timeout_s} s): what is published as one takes longer",
                hint="raise it, and the brokers' transaction.max.timeout.ms; or set"
                " kafka.transactions = false",
            ) from None

    def _commit(self, producer: Producer, position: ChainPosition) -> None:
        if not self._begun:  # Without an event the logged position is as good.
            return
        topic, value = self._settings.positions_topic, msgspec.json.encode(position)
        self._hand_over(producer, topic, self._name.encode(), value, 0)
        try:
            self._wait.ask(producer.commit_transaction)
        except KafkaException:
            self._check()  # The record that is at fault says more than that the rest is undone.
            raise
        self._begun = False

    def _produce(self, producer: Producer, event: ChangeEvent) -> None:
        topic, partitions = self._topic(event)
        headers: Headers = [
            ("tl_seq", f"{event.seq}.{event.part}" if event.part else str(event.seq)),
            *event.headers,
        ]
        places: Sequence[int] = (-1,)  # By the key.
        if event.key is None:
            # A truncate is for the rows of all keys; rows without a key stay in order.
            places = range(partitions) if event.op == TRUNCATED else (0,)
        for place in places:
            try:
                self._hand_over(producer, topic, event.key, event.value, place, headers)
            except KafkaException as error:
                if error.args[0].code() in TOO_LARGE:
                    raise self._too_large(event) from None
                raise

    def _hand_over(
        self,
        producer: Producer,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int,
        headers: Headers | None = None,
    ) -> None:
        """Hand a record over, once the client's own buffer has room."""
        try:
            producer.produce(topic, value, key, partition, headers=headers)
            return
        except BufferError:
            producer.poll(0)

        def taken(_: float) -> bool:
            try:
                producer.produce(topic, value, key, partition, headers=headers)
            except BufferError:
                producer.poll(_TAKE_AGAIN_S)
                return False
            return True

        self._wait.await_(taken)

    def _too_large(self, event: ChangeEvent) -> Misconfigured:
        return Misconfigured(
            f"the event of change {event.seq} of {event.table} has {event.size} bytes, more"
            f" than kafka.record_bytes_max ({self._settings.record_bytes_max})",
            hint="raise it, and max.message.bytes of the topic; or leave a column out"
            " (publish.….columns)",
        )

    def _topic(self, event: ChangeEvent) -> tuple[str, int]:
        """Return the topic of an event, and its number of partitions."""
        place = (event.route, "" if event.route else event.table)
        if place not in self._places:
            topic = event.route or topic_of(
                self._settings.topic, self._pipeline, parse_table(event.table)
            )
            if topic == self._settings.positions_topic:
                raise Misconfigured(
                    f"the event of change {event.seq} of {event.table} would go to {topic}, which"
                    " keeps publishers' positions",
                    hint="change outbox.topic, kafka.topic or kafka.positions_topic",
                )
            self._places[place] = topic, self._topics.ensure(topic)
        return self._places[place]

    def _producer_settings(self) -> dict[str, Any]:
        timeout_ms = int(self._settings.timeout_s * 1000)
        settings = {
            **client_settings(self._settings),
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # As Java's clients do.
            "compression.type": "zstd",
            "linger.ms": 5,
            "message.max.bytes": self._settings.record_bytes_max,
            "queue.buffering.max.kbytes": 64 * 1024,
            "queue.buffering.max.messages": 200_000,
            "delivery.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
        }
        if self._settings.transactions:
            settings |= {
                "transactional.id": self._name,
                "transaction.timeout.ms": self._settings.transaction_timeout_s * 1000,
            }
        return settings

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure, self._failed_at = error, f" for {message.topic()}"

    def _check(self) -> None:
        """Raise for a record that was not delivered since the output was opened."""
        if self._failure is not None:
            raise explained(self._failure, f"to take events{self._failed_at}")

    def _opened(self) -> Producer:
        assert self._producer is not None
        return self._producer
