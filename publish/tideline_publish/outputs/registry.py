"""The outputs by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.settings import PublishSettings
from tideline_publish.outputs.base import Output
from tideline_publish.outputs.files import FilesOutput
from tideline_publish.outputs.null import NullOutput

Pause = Callable[[float], object]
OutputMaker = Callable[[str, str, PublishSettings, Pause], Output]
"""Makes an output from the names of pipeline and publisher, the publisher's settings, and what
waits for some seconds, or until the publisher is stopped."""


def _kafka(pipeline: str, publisher: str, settings: PublishSettings, pause: Pause) -> Output:
    # heavy: only publishers to Kafka have its client
    from tideline_publish.outputs.kafka.output import KafkaOutput

    return KafkaOutput(pipeline, publisher, settings.kafka, pause)


OUTPUTS: Mapping[str, OutputMaker] = {
    "files": lambda _pipeline, _publisher, settings, _pause: FilesOutput(
        settings.files, keyed=settings.format != "json"
    ),
    "kafka": _kafka,
    "null": lambda *_: NullOutput(),
}
