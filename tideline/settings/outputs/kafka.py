"""The Kafka that a publisher's events go to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from tideline.settings.addresses import is_loopback
from tideline.settings.base import Effect, Section
from tideline.settings.outputs.templates import Unambiguous
from tideline.settings.secrets import known, secret_of

_TOPIC = r"^([A-Za-z0-9._-]|\{pipeline\}|\{schema\}|\{table\})+$"


def _host(server: str) -> str:
    """Return the host of ``host:port``, or of ``[address]:port``."""
    return server.rpartition(":")[0].strip("[]")


class KafkaSettings(Section):
    """The Kafka that a publisher's events go to."""

    effect = Effect.COMMAND

    servers: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Addresses of brokers: `["broker-1:9092", "broker-2:9092"]`."""
    topic: Annotated[str, Field(pattern=_TOPIC, max_length=249), Unambiguous] = (
        "{pipeline}.{schema}.{table}"
    )
    """The topic of a table's events. A character of a name that topics lack is `_x`, its code in
    hex, and `_` ([PUBLISHING](PUBLISHING.md#names))."""
    transactions: bool = True
    """A transaction of the source, and the publisher's position, are one transaction of Kafka's:
    consumers with `isolation.level=read_committed` see it whole, and once. `false`: events arrive
    sooner, and some again after a crash."""
    positions_topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")] = (
        "tideline.positions"
    )
    """The compacted topic that publishers with `transactions` keep their positions in; it is
    made where it is not there."""
    record_bytes_max: Annotated[int, Field(ge=1_000, le=1_000_000_000)] = 1_000_000
    """The largest event; a larger one stops the publisher by name. No more than
    `max.message.bytes` of the topics."""
    make_topics: bool = False
    """Topics that are not there are made, by the broker's defaults for partitions and replicas."""
    security_protocol: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "ssl"
    """`plaintext` and `sasl_plaintext` only for brokers on this machine."""
    ca_file: Path | None = None
    """Authorities that brokers' certificates are verified by; None: the system's."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """The mechanism of `sasl_ssl`."""
    user: str | None = None
    """The user at the brokers."""
    password: SecretStr | None = None
    """That user's password; better in a file."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    timeout_s: Annotated[float, Field(ge=1, le=300)] = 30.0
    """A request, or a record, waits for the brokers so long; then the publisher is `waiting`, and
    begins again from its position, for ever."""
    transaction_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 600
    """The brokers give up a transaction of theirs after so long, which the largest transaction of
    the source, or first emission of documents, has to fit in. Brokers allow 900 by default."""

    @model_validator(mode="after")
    def _without_tls_on_this_machine_only(self) -> Self:
        away = [one for one in self.servers if not is_loopback(_host(one))]
        if away and not self.security_protocol.endswith("ssl"):
            raise ValueError(
                f"has no TLS to {away[0]}, which is not on this machine: set"
                f' security_protocol = "{self.security_protocol.replace("plaintext", "ssl")}"'
            )
        return self

    def secret(self) -> str | None:
        """Return the password, from the setting or the file. Raises Misconfigured for an unreadable
        file."""
        return secret_of(self.password, self.password_file, key="publish.….kafka.password")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        return known(self.secret)
