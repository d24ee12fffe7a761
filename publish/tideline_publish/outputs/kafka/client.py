"""The settings of Kafka's client, for all that talks to its brokers."""

from __future__ import annotations

from typing import Any

from tideline.settings.outputs.kafka import KafkaSettings


def client_settings(settings: KafkaSettings) -> dict[str, Any]:
    """Return what producers, consumers and the admin client have in common. Raises Misconfigured
    for a password's file that cannot be read."""
    found: dict[str, Any] = {
        "bootstrap.servers": ",".join(settings.servers),
        "client.id": "tideline",
        "security.protocol": settings.security_protocol,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 2_000,
        # It would print a line for each try to reach a broker; errors are raised.
        "log_level": 0,
    }
    if settings.ca_file is not None:
        found["ssl.ca.location"] = str(settings.ca_file)
    if settings.user is not None:
        found |= {
            "sasl.mechanism": settings.sasl_mechanism,
            "sasl.username": settings.user,
            "sasl.password": settings.secret() or "",
        }
    return found
