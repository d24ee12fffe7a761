"""Explains why no broker of Kafka can be reached, by what its client says beside the error."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from tideline.contract.errors import Unavailable

_UNREACHED = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
_TIMING = re.compile(r" \(after \d+ms in state .*\)$")
"""It differs from try to try."""


class BrokerTrouble:
    """The last trouble that a client had with a broker. The client's texts name addresses, never
    a password or what is in a record."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Keep ``error``, for the client's ``error_cb``. That all brokers are down is no cause."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last = error

    def explained(self, error: KafkaException) -> Exception:
        """Return the error to raise for a request's ``error``: Unavailable with the trouble that is
        known, where no broker was reached; else the error itself."""
        found: KafkaError = error.args[0]
        if self._last is None or found.code() not in _UNREACHED:
            return error
        text = _TIMING.sub("", self._last.str())
        return Unavailable(f"no broker of Kafka can be reached: {text}", hint=_hint(self._last))


def _hint(error: KafkaError) -> str:
    if error.code() == KafkaError._RESOLVE:
        return "see kafka.servers"
    if error.code() == KafkaError._AUTHENTICATION:
        return "see kafka.sasl_mechanism, kafka.user and kafka.password_file"
    if error.code() == KafkaError._SSL or "SSL" in error.str():
        return (
            "kafka.security_protocol is that of the brokers' listener, and kafka.ca_file has the"
            " authority of their certificates"
        )
    return "check that the brokers run, and kafka.servers"
