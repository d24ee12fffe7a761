"""The publishers of a pipeline: what each reads of the chain, and where it brings the events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import check_patterns
from tideline.settings.avro import AvroSettings
from tideline.settings.base import Count, Effect, MiB, Name, Seconds, Section
from tideline.settings.outbox import OutboxSettings
from tideline.settings.outputs.kafka import KafkaSettings
from tideline.settings.outputs.kinesis import KinesisSettings
from tideline.settings.outputs.opensearch import OpenSearchSettings
from tideline.settings.outputs.redis import RedisSettings
from tideline.settings.outputs.templates import check_one_each
from tideline.settings.outputs.webhook import WebhookSettings

OutputName = Literal["files", "kafka", "kinesis", "null", "opensearch", "redis", "webhook"]
"""The kinds of outputs (`tideline_publish.outputs.registry`)."""
FormatName = Literal["json", "avro", "cloudevents", "debezium"]
"""The forms of events (`tideline_publish.formats.registry`)."""
Operation = Literal["c", "u", "d", "r", "t"]
_IN_AN_ENVELOPE = ("files", "kinesis", "webhook")
"""The outputs whose records are a value and nothing else."""
START = r"^(beginning|now|sequence:[0-9]{1,19}|manifest:[0-9]{1,19}|time:[0-9T:.+Z-]{10,40})$"


class FilesSettings(Section):
    """The folder that a publisher's events go to."""

    effect = Effect.COMMAND

    folder: Path | None = None
    """An absolute path."""
    file_bytes_max: Annotated[Count, Field(le=1024 * MiB)] = 64 * MiB
    """A file of JSON lines is closed at this size, at the next end of a transaction."""
    format: Literal["lines", "parquet"] = "lines"
    """`lines`: JSON lines, in files named by the first sequence that they hold. `parquet`: Parquet
    files in a folder for each table, named by the first and the last sequence."""
    file_age_s: Seconds = 60.0
    """Parquet files appear after so long, or once the publisher's `batch_bytes_max` came
    together."""


class DebeziumSettings(Section):
    """Debezium's envelope, as its connectors write it by their defaults."""

    effect = Effect.COMMAND

    prefix: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = None
    """Debezium's `topic.prefix`: the name in `source`, and the first part of schemas' names. None:
    the pipeline's name."""
    tombstones: bool = True
    """A delete is followed by its key without a value, which makes a compacted topic forget it
    (Debezium's `tombstones.on.delete`)."""
    schemas: bool = False
    """Keys and events carry their Connect schema, `{"schema": …, "payload": …}`, as those of
    `JsonConverter` with `schemas.enable`."""
    unavailable: Annotated[str, Field(min_length=1, max_length=200)] = (
        "__debezium_unavailable_value"
    )
    """The placeholder for values that the log left out (Debezium's
    `unavailable.value.placeholder`)."""


class PublishSettings(Section):
    """A publisher."""

    effect = Effect.COMMAND

    output: OutputName
    """The place of the events: `kafka`, `kinesis`, `redis`, `webhook`, `opensearch`, `files`; or
    `null`, which only counts them."""
    format: FormatName = "json"
    """The form of an event."""
    tables: tuple[str, ...] = ("*.*",)
    """The tables, as patterns over `schema.table`."""
    exclude_tables: tuple[str, ...] = ()
    """Those of them that are left out."""
    aggregates: Annotated[tuple[Name, ...], Field(max_length=100)] = ()
    """Sections `[aggregates.NAME]`: their documents are published, one for each row of their root,
    and no rows ([AGGREGATES](AGGREGATES.md)). `tables` and `columns` are not for these."""
    state_interval_s: Seconds = 600.0
    """What documents are made from is written to the store after so long, where it changed. A
    worker that starts reads it, and the parts of the chain behind it, which are kept until then."""
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
    redis: RedisSettings = RedisSettings()
    """For the output `redis`."""
    webhook: WebhookSettings = WebhookSettings()
    """For the output `webhook`."""
    kinesis: KinesisSettings = KinesisSettings()
    """For the output `kinesis`."""
    opensearch: OpenSearchSettings = OpenSearchSettings()
    """For the output `opensearch`."""
    debezium: DebeziumSettings = DebeziumSettings()
    """For the format `debezium`."""
    avro: AvroSettings = AvroSettings()
    """For the format `avro`."""
    outbox: OutboxSettings = OutboxSettings()
    """For events that the application wrote itself ([OUTBOX](OUTBOX.md))."""

    @field_validator("tables", "exclude_tables")
    @classmethod
    def _sound_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        try:
            check_patterns(patterns)
        except Misconfigured as error:
            raise ValueError(error.message) from None
        return patterns

    @model_validator(mode="after")
    def _documents_have_a_form(self) -> Self:
        if self.aggregates and self.format not in ("json", "cloudevents"):
            raise ValueError('publishes aggregates: format must be "json" or "cloudevents"')
        if len(set(self.aggregates)) < len(self.aggregates):
            raise ValueError("names an aggregate twice")
        return self

    @model_validator(mode="after")
    def _place_is_named(self) -> Self:
        if self.output == "kafka" and not self.kafka.servers:
            raise ValueError('names no broker: set kafka.servers = ["host:9092"]')
        if self.output == "kinesis" and self.kinesis.stream is None:
            raise ValueError('names no stream: set kinesis.stream = "name"')
        if self.output == "files" and self.files.folder is None:
            raise ValueError("names no folder: set files.folder to an absolute path")
        if self.output == "files" and self.files.folder and not self.files.folder.is_absolute():
            raise ValueError(f"files.folder is {str(self.files.folder)!r}: set an absolute path")
        if self.output == "kafka" and self.heartbeat_s > self.takeover_after_s / 2:
            raise ValueError(
                "would be taken over while it waits for Kafka: heartbeat_s must be at most half of"
                " takeover_after_s"
            )
        return self

    @model_validator(mode="after")
    def _endpoint_is_named(self) -> Self:
        if self.output != "webhook":
            return self
        if self.webhook.url is None:
            raise ValueError('names no endpoint: set webhook.url = "https://host/path"')
        if self.webhook.secret is None and self.webhook.secret_file is None:
            raise ValueError("has nothing to sign requests with: set webhook.secret_file")
        return self

    @model_validator(mode="after")
    def _avro_has_its_registry(self) -> Self:
        if self.format != "avro":
            return self
        if self.output not in ("kafka", "null"):
            raise ValueError(f'has format = "avro", which the output {self.output} cannot hold')
        if self.output == "kafka" and self.avro.registry is None:
            raise ValueError('names no schema registry: set avro.registry = "https://host"')
        if 2 * self.avro.timeout_s + self.heartbeat_s >= self.takeover_after_s:
            raise ValueError(
                "would be taken over while it waits for the schema registry: two times"
                " avro.timeout_s, and heartbeat_s, together must be below takeover_after_s"
            )
        return self

    @model_validator(mode="after")
    def _outbox_has_a_form(self) -> Self:
        if self.outbox.is_set and (self.aggregates or self.output == "opensearch"):
            raise ValueError(
                "has an outbox, whose events are no documents: make it another publisher, without"
                " aggregates and with another output than opensearch"
            )
        if self.outbox.is_set and self.format == "cloudevents" and self.output in _IN_AN_ENVELOPE:
            raise ValueError(
                f"has an outbox, whose events the output {self.output} would carry in an envelope"
                ' that is no CloudEvent: set format = "json", or make it another publisher'
            )
        return self

    @model_validator(mode="after")
    def _cluster_is_named(self) -> Self:
        if self.output != "opensearch":
            return self
        if self.opensearch.url is None:
            raise ValueError('names no cluster: set opensearch.url = "https://host:9200"')
        if self.format != "json":
            raise ValueError('has documents of its own form: format must be "json"')
        check_one_each(self.opensearch.index, self.tables, self.aggregates)
        return self

    @model_validator(mode="after")
    def _answers_come_before_a_takeover(self) -> Self:
        timeouts_s = {
            "kinesis": self.kinesis.timeout_s,
            "opensearch": self.opensearch.timeout_s,
            "webhook": self.webhook.timeout_s,
        }
        waited_s = timeouts_s.get(self.output, 0.0) + self.heartbeat_s
        if self.output in timeouts_s and waited_s >= self.takeover_after_s:
            raise ValueError(
                f"would be taken over while it waits for an answer: {self.output}.timeout_s and"
                " heartbeat_s together must be below takeover_after_s"
            )
        return self
