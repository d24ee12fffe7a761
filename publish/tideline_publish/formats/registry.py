"""The forms of events by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.settings import PublishSettings
from tideline_publish.formats.base import EventFormat
from tideline_publish.formats.cloudevents import CloudEventsFormat
from tideline_publish.formats.debezium.format import DebeziumFormat
from tideline_publish.formats.json import JsonFormat

FormatMaker = Callable[[str, PublishSettings], EventFormat]
"""Makes a form from the pipeline's name and the publisher's settings."""
FORMATS: Mapping[str, FormatMaker] = {
    "cloudevents": lambda pipeline, _settings: CloudEventsFormat(pipeline),
    "debezium": lambda pipeline, settings: DebeziumFormat(pipeline, settings.debezium),
    "json": lambda *_: JsonFormat(),
}
