"""The forms of events by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.contract.errors import Misconfigured
from tideline.settings import PublishSettings
from tideline_publish.formats.base import EventFormat
from tideline_publish.formats.cloudevents import CloudEventsFormat
from tideline_publish.formats.debezium.format import DebeziumFormat
from tideline_publish.formats.json import JsonFormat

FormatMaker = Callable[[str, PublishSettings], EventFormat]
"""Makes a form from the pipeline's name and the publisher's settings."""


def _avro(pipeline: str, settings: PublishSettings) -> EventFormat:
    # heavy: only publishers of Avro have the registry's client
    try:
        from tideline_publish.formats.avro.make import make_avro
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "this form of events needs the Python package urllib3, which is not installed",
            hint="pip install 'tideline-cdc[avro]'",
        ) from error

    return make_avro(pipeline, settings)


FORMATS: Mapping[str, FormatMaker] = {
    "avro": _avro,
    "cloudevents": lambda pipeline, _settings: CloudEventsFormat(pipeline),
    "debezium": lambda pipeline, settings: DebeziumFormat(pipeline, settings.debezium),
    "json": lambda *_: JsonFormat(),
}
