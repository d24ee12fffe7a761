"""Looks for topics, and makes them."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tideline.contract.errors import Misconfigured
from tideline.settings.outputs.kafka import KafkaSettings
from tideline_publish.outputs.kafka.client import client_settings
from tideline_publish.outputs.kafka.trouble import BrokerTrouble
from tideline_publish.outputs.kafka.waiting import BrokerWait

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_LOOK_AGAIN_S = 0.1


class Topics:
    """The topics at the brokers, by one client of its own."""

    def __init__(self, settings: KafkaSettings, wait: BrokerWait) -> None:
        self._settings = settings
        self._wait = wait
        self._client: AdminClient | None = None
        self._trouble = BrokerTrouble()

    def ensure(self, topic: str, *, partitions: int = -1, compacted: bool = False) -> int:
        """Return the number of partitions of ``topic``. One that is ``compacted``, or any where the
        settings want that, is made where it is missing, with so many ``partitions`` (-1: as the
        broker does by default). Raises Misconfigured for one that is not there."""
        known = self._partitions(topic)
        if known == 0 and (compacted or self._settings.make_topics):
            config = {"cleanup.policy": "compact"} if compacted else {}
            self._make(NewTopic(topic, partitions, -1, config=config))
            known = self._appeared(topic)
        if known == 0:
            raise Misconfigured(
                f"Kafka has no topic {topic}",
                hint="make it, with as many partitions as its consumers need; or set"
                " kafka.make_topics = true",
            )
        return known

    def _make(self, topic: Any) -> None:
        made = self._opened().create_topics([topic])[topic.topic]

        def done(seconds: float) -> bool:
            try:
                made.result(seconds)
            except TimeoutError:
                return False
            return True

        try:
            self._wait.await_(done)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_EXCEPTION:
                raise Misconfigured(
                    f"Kafka makes no topic {topic.topic}: its name is not valid, or differs by ."
                    " and _ alone from that of a topic that is there",
                    hint="change kafka.topic or outbox.topic, or leave the table out"
                    " (publish.….exclude_tables)",
                ) from None
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _partitions(self, topic: str) -> int:
        """Return the number of a topic's partitions, 0 where there is none."""
        client = self._opened()
        try:
            listed = self._wait.ask(lambda seconds: client.list_topics(topic, seconds))
        except KafkaException as error:
            client.poll(0)  # Has the trouble noted.
            raise self._trouble.explained(error) from None
        found = listed.topics.get(topic)
        if found is None:
            return 0
        if found.error is None:
            return len(found.partitions)
        if found.error.code() in _MISSING:
            return 0
        raise KafkaException(found.error)

    def _appeared(self, topic: str) -> int:
        """Return the number of partitions of a topic that was made: brokers learn of it in a
        moment."""
        for _ in range(int(self._wait.timeout_s / _LOOK_AGAIN_S)):
            count = self._partitions(topic)
            if count:
                return count
            self._wait.pause(_LOOK_AGAIN_S)
        return 0

    def _opened(self) -> AdminClient:
        if self._client is None:
            settings = {**client_settings(self._settings), "error_cb": self._trouble.note}
            self._client = AdminClient(settings)
        return self._client
