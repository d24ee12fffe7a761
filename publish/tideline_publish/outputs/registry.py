"""The outputs by the names that the settings have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tideline.contract.errors import Misconfigured
from tideline_publish.outputs.base import Output, OutputContext
from tideline_publish.outputs.files import FilesOutput
from tideline_publish.outputs.null import NullOutput
from tideline_publish.outputs.parquet_files import ParquetOutput

OutputMaker = Callable[[OutputContext], Output]


def _files(context: OutputContext) -> Output:
    if context.settings.files.format == "parquet":
        return ParquetOutput(context)
    return FilesOutput(context)


def _kafka(context: OutputContext) -> Output:
    # heavy: only publishers to Kafka have its client
    try:
        from tideline_publish.outputs.kafka.output import KafkaOutput
    except ModuleNotFoundError as error:
        raise _not_installed("confluent-kafka", "kafka") from error

    return KafkaOutput(context)


def _kinesis(context: OutputContext) -> Output:
    # heavy: only publishers to Kinesis have its client
    try:
        from tideline_publish.outputs.kinesis.output import KinesisOutput
    except ModuleNotFoundError as error:
        raise _not_installed("botocore", "aws") from error

    return KinesisOutput(context)


def _opensearch(context: OutputContext) -> Output:
    # heavy: only publishers to a cluster have its client
    try:
        from tideline_publish.outputs.opensearch.output import OpenSearchOutput
    except ModuleNotFoundError as error:
        raise _not_installed("urllib3", "opensearch") from error

    return OpenSearchOutput(context)


def _redis(context: OutputContext) -> Output:
    from tideline_publish.outputs.redis.output import RedisOutput

    settings = context.settings
    return RedisOutput(
        context.pipeline,
        context.publisher,
        settings.redis,
        has_outbox=settings.outbox.is_set,
    )


def _webhook(context: OutputContext) -> Output:
    # heavy: only publishers to an endpoint have its client
    try:
        from tideline_publish.outputs.webhook.output import WebhookOutput
    except ModuleNotFoundError as error:
        raise _not_installed("urllib3", "webhook") from error

    return WebhookOutput(context)


def _not_installed(package: str, extra: str) -> Misconfigured:
    return Misconfigured(
        f"this output needs the Python package {package}, which is not installed",
        hint=f"pip install 'tideline-cdc[{extra}]'",
    )


OUTPUTS: Mapping[str, OutputMaker] = {
    "files": _files,
    "kafka": _kafka,
    "kinesis": _kinesis,
    "null": lambda _: NullOutput(),
    "opensearch": _opensearch,
    "redis": _redis,
    "webhook": _webhook,
}
