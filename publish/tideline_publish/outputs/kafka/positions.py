"""Reads the position that transactions keep in Kafka.

The last record of a partition is not found by its end: markers of transactions, and records of
aborted ones, have offsets, too. So the partition is read from some way before its end.
"""

from __future__ import annotations

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tideline.contract.errors import CorruptData
from tideline.contract.publishing import ChainPosition
from tideline.settings.outputs.kafka import KafkaSettings
from tideline_publish.outputs.kafka.client import client_settings
from tideline_publish.outputs.kafka.waiting import BrokerWait

_LOOKED_BACK = 1_000
_POSITION = msgspec.json.Decoder(ChainPosition)


def committed_position(
    settings: KafkaSettings, name: str, wait: BrokerWait
) -> ChainPosition | None:
    """Return the position of the last committed transaction of ``name``, None without any.

    Raises KafkaException and Unavailable where the brokers do not answer, CorruptData for a record
    that is no position.
    """
    topic, span = settings.positions_topic, _LOOKED_BACK
    consumer = Consumer(
        {
            **client_settings(settings),
            "group.id": f"tideline-{name}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        place = TopicPartition(topic, 0)
        first, end = wait.ask(lambda seconds: consumer.get_watermark_offsets(place, seconds))
        while True:
            start = max(first, end - span)
            found = _last_value(consumer, topic, start, name.encode(), wait)
            if found is not None or start == first:
                return None if found is None else _decoded(found, topic)
            span *= 10
    finally:
        consumer.close()


def _decoded(value: bytes, topic: str) -> ChainPosition:
    try:
        return _POSITION.decode(value)
    except msgspec.MsgspecError:
        raise CorruptData(
            f"a record of {topic} is no position of a publisher",
            hint="another program writes to it: name another in kafka.positions_topic",
        ) from None


def _last_value(
    consumer: Consumer, topic: str, start: int, key: bytes, wait: BrokerWait
) -> bytes | None:
    """Return the last value of ``key`` in partition 0 from the offset ``start`` on."""
    consumer.assign([TopicPartition(topic, 0, start)])
    found: bytes | None = None
    messages: list[Message] = []

    def polled(seconds: float) -> bool:
        messages.extend(consumer.consume(1, seconds))
        return bool(messages)

    while True:
        wait.await_(polled)
        message = messages.pop()
        error = message.error()
        if error is None:
            found = message.value() if message.key() == key else found
        elif error.code() == KafkaError._PARTITION_EOF:
            return found
        else:
            raise KafkaException(error)
