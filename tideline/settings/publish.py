"""The publishers of a pipeline: what each reads of the chain, and where it brings the events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns
from tideline.settings.base import Count, Effect, MiB, Seconds, Section
from tideline.settings.secrets import known, secret_of

OutputName = Literal["files", "kafka", "null"]
"""The kinds of outputs (`tideline_publish.outputs.registry`)."""
FormatName = Literal["json"]
"""The forms of events (`tideline_publish.formats.registry`)."""
Operation = Literal["c", "u", "d", "r", "t"]
START = r"^(beginning|now|sequence:[0-9]{1,19}|manifest:[0-9]{1,19}|time:[0-9T:.+Z-]{10,40})$"
_TOPIC = r"^([A-Za-z0-9._-]|\{pipeline\}|\{schema\}|\{table\})+$"


class KafkaSettings(Section):
    """The Kafka that a publisher's events go to."""

    effect = Effect.COMMAND

    servers: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Addresses of brokers: `["broker-1:9092", "broker-2:9092"]`."""
    topic: Annotated[str, Field(pattern=_TOPIC, max_length=249)] = "{pipeline}.{schema}.{table}"
    """The topic of a table's events. A character of a name that topics lack is `_x`, its code in
    hex, and `_`."""
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

    def secret(self) -> str | None:
        """Return the password, from the setting or the file. Raises Misconfigured for an unreadable
        file."""
        return secret_of(self.password, self.password_file, key="publish.….kafka.password")

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here."""
        return known(self.secret)


class FilesSettings(Section):
    """The folder that a publisher's events go to."""

    effect = Effect.COMMAND

    folder: Path | None = None
    """An absolute path; files of JSON lines, named by the first sequence that they hold."""
    file_bytes_max: Annotated[Count, Field(le=1024 * MiB)] = 64 * MiB
    """A file is closed at this size, at the next end of a transaction."""


class PublishSettings(Section):
    """A publisher."""

    effect = Effect.COMMAND

    output: OutputName
    """The place of the events: `kafka`, `files`, or `null`, which counts them."""
    format: FormatName = "json"
    """The form of an event."""
    tables: tuple[str, ...] = ("*.*",)
    """The tables, as patterns over `schema.table`."""
    exclude_tables: tuple[str, ...] = ()
    """Those of them that are left out."""
    columns: Mapping[str, tuple[str, ...]] = {}
    """The columns of an event's row, by table; of tables that are not named here, all. The key is
    always there."""
    operations: Annotated[frozenset[Operation], Field(min_length=1)] = frozenset(
        ("c", "u", "d", "r", "t")
    )
    """The operations: `c`, `u`, `d` (rows made, updated, deleted), `r` (a dump's rows), `t` (a
    truncate)."""
    start: Annotated[str, Field(pattern=START)] = "beginning"
    """The place where a new publisher begins: `beginning` (of the chain), `now` (its end),
    `sequence:N` and `manifest:N` (behind it), or `time:2026-11-28T16:00:00Z`: no later change is
    left out, and a few before it may be there."""
    flush_interval_s: Seconds = 0.1
    """Events are made durable at the output after this at the latest."""
    batch_bytes_max: Count = 16 * MiB
    """… or at this size of parts, at the next end of a transaction."""
    poll_interval_s: Annotated[float, Field(ge=0.005, le=60)] = 0.05
    """The pause between two looks for what is new in the chain."""
    heartbeat_s: Seconds = 5.0
    """The publisher's log of positions grows at least so often."""
    takeover_after_s: Seconds = 15.0
    """A passive worker takes over a publisher whose positions have not grown for so long."""
    kafka: KafkaSettings = KafkaSettings()
    """For the output `kafka`."""
    files: FilesSettings = FilesSettings()
    """For the output `files`."""

    @field_validator("tables", "exclude_tables")
    @classmethod
    def _sound_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        try:
            check_patterns(patterns)
        except Misconfigured as error:
            raise ValueError(error.message) from None
        return patterns

    @model_validator(mode="after")
    def _place_is_named(self) -> Self:
        if self.output == "kafka" and not self.kafka.servers:
            raise ValueError('names no broker: set kafka.servers = ["host:9092"]')
        if self.output == "files" and (
            self.files.folder is None or not self.files.folder.is_absolute()
        ):
            raise ValueError("names no folder: set files.folder to an absolute path")
        return self
