"""Looks for topics, and makes them."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tideline.contract.errors import Misconfigured
from tideline.settings.publish import KafkaSettings
from tideline_publish.outputs.kafka.client import ANSWER_S, client_settings

_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def ensure_topic(
    settings: KafkaSettings,
    pause: Callable[[float], object],
    topic: str,
    *,
    partitions: int = -1,
    compacted: bool = False,
) -> int:
    """Return the number of partitions of ``topic``. One that is ``compacted``, or any where the
    settings want that, is made where it is missing, with so many ``partitions`` (-1: as the broker
    does by default), and ``pause`` waits for it. Raises Misconfigured for one that is not there."""
    admin = AdminClient(client_settings(settings))
    known = _partitions(admin, topic)
    if known == 0 and (compacted or settings.make_topics):
        config = {"cleanup.policy": "compact"} if compacted else {}
        made = admin.create_topics([NewTopic(topic, partitions, -1, config=config)])
        try:
            made[topic].result(ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        known = _appeared(admin, pause, topic)
    if known == 0:
        raise Misconfigured(
            f"Kafka has no topic {topic}",
            hint="make it, with as many partitions as its consumers need; or set"
            " kafka.make_topics = true",
        )
    return known


def _partitions(admin: AdminClient, topic: str) -> int:
    """Return the number of a topic's partitions, 0 where there is none."""
    found = admin.list_topics(topic, ANSWER_S).topics.get(topic)
    if found is None:
        return 0
    if found.error is None:
        return len(found.partitions)
    if found.error.code() in _MISSING:
        return 0
    raise KafkaException(found.error)


def _appeared(admin: AdminClient, pause: Callable[[float], object], topic: str) -> int:
    """Return the number of partitions of a topic that was made: brokers learn of it in a moment."""
    for _ in range(int(ANSWER_S * 10)):
        count = _partitions(admin, topic)
        if count:
            return count
        pause(0.1)
    return 0
