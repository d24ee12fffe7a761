"""Makes the form of events from settings."""

from __future__ import annotations

from tideline.contract.schema import TableId
from tideline.settings import PublishSettings
from tideline_publish.formats.avro.format import AvroFormat, Subject, record_subject
from tideline_publish.formats.avro.registry import SchemaIds, SchemaRegistry, UnregisteredIds
from tideline_publish.formats.avro.schemas import AvroSchema
from tideline_publish.outputs.names import topic_of


def make_avro(pipeline: str, settings: PublishSettings) -> AvroFormat:
    """Return Avro as ``settings`` have it; without a registry no schema is registered."""
    avro = settings.avro
    ids: SchemaIds = UnregisteredIds() if avro.registry is None else SchemaRegistry(avro)
    subject = record_subject if avro.subjects == "record" else _by_topic(pipeline, settings)
    return AvroFormat(pipeline, ids, subject)


def _by_topic(pipeline: str, settings: PublishSettings) -> Subject:
    def subject(table: TableId, _avro: AvroSchema, role: str) -> str:
        return f"{topic_of(settings.kafka.topic, pipeline, table)}-{role}"

    return subject
