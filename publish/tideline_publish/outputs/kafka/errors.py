"""The errors of Kafka's client as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tideline.contract.errors import Fenced, Misconfigured, TidelineError, Unavailable

_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
ENDED = _FENCED | {KafkaError._FATAL}
"""What ends a producer: the brokers know another of its id, or have given its transaction up."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_POISON = frozenset(
    {
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""What trying again does not mend: the brokers look into a record and refuse it."""
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


@contextmanager
def asking(doing: str) -> Iterator[None]:
    """Convert what the client raises."""
    try:
        yield
    except KafkaException as error:
        raise explained(_of(error), doing) from None


def explained(error: KafkaError, doing: str) -> TidelineError:
    """Return the client's error as one of ours, raised while it was asked ``doing``."""
    name = error.name()
    if error.code() in _FENCED:
        return Fenced(
            f"Kafka refuses {doing}: {name}",
            hint="another producer has this publisher's transactional id: a worker that took over,"
            " or a pipeline and publisher of the same names",
        )
    if error.code() in _REFUSED:
        return Misconfigured(
            f"Kafka refuses {doing}: {name}",
            hint="see what rights the user has (docs/PUBLISHING.md#kafka)",
        )
    if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return Misconfigured(
            f"Kafka refuses {doing}: {name}",
            hint="lower kafka.transaction_timeout_s, or raise the brokers'"
            " transaction.max.timeout.ms, which is less",
        )
    if error.code() in TOO_LARGE:
        return Misconfigured(
            f"Kafka refuses {doing}: {name}",
            hint="raise max.message.bytes of the topic to kafka.record_bytes_max",
        )
    if error.code() in _POISON:
        return Misconfigured(
            f"Kafka refuses {doing}: {name}",
            hint="a topic with cleanup.policy=compact takes no record without a key: truncates, and"
            " rows of a table without one; leave these out (publish.….operations, exclude_tables)",
        )
    return Unavailable(
        f"Kafka failed {doing}: {name}", hint="check that its brokers run and can be reached"
    )


def _of(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found
