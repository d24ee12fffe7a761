"""The outputs by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.settings import PublishSettings
from tideline_publish.outputs.base import Output
from tideline_publish.outputs.files import FilesOutput
from tideline_publish.outputs.null import NullOutput

OutputMaker = Callable[[str, str, PublishSettings], Output]
"""Makes an output from the names of pipeline and publisher, and the publisher's settings."""


def _kafka(pipeline: str, publisher: str, settings: PublishSettings) -> Output:
    # heavy: only publishers to Kafka have its client
    from tideline_publish.outputs.kafka.output import KafkaOutput

    return KafkaOutput(pipeline, publisher, settings.kafka)


def _redis(pipeline: str, publisher: str, settings: PublishSettings) -> Output:
    from tideline_publish.outputs.redis.output import RedisOutput

    return RedisOutput(pipeline, publisher, settings.redis)


OUTPUTS: Mapping[str, OutputMaker] = {
    "files": lambda _pipeline, _publisher, settings: FilesOutput(settings.files),
    "kafka": _kafka,
    "null": lambda *_: NullOutput(),
    "redis": _redis,
}
