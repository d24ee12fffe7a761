"""The outputs by name: the settings' list, and what is not installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tideline.contract.errors import Misconfigured
from tideline.settings import PublishSettings
from tideline.settings.publish import FormatName, OutputName
from tideline.system import RealSystem
from tideline_publish.formats.registry import FORMATS
from tideline_publish.outputs.base import OutputContext
from tideline_publish.outputs.parquet_files import ParquetOutput
from tideline_publish.outputs.registry import OUTPUTS

GIVEN: dict[str, dict[str, Any]] = {
    "kafka": {"servers": ["127.0.0.1:9092"]},
    "kinesis": {"stream": "s"},
    "opensearch": {"url": "https://example.com"},
    "webhook": {"url": "https://example.com", "secret": "s"},
}


def context_of(output: str, given: dict[str, Any]) -> OutputContext:
    settings = PublishSettings.model_validate({"output": output, output: given})
    return OutputContext("shop", "e", settings, RealSystem(), lambda _: True)


def test_every_name_of_the_settings_is_there() -> None:
    assert set(OUTPUTS) == set(get_args(OutputName))
    assert set(FORMATS) == set(get_args(FormatName))


@pytest.mark.parametrize(
    ("output", "package", "extra"),
    [
        ("kafka", "confluent_kafka", "kafka"),
        ("kinesis", "botocore", "aws"),
        ("opensearch", "urllib3", "opensearch"),
        ("webhook", "urllib3", "webhook"),
    ],
)
def test_a_client_that_is_not_installed_is_named_with_its_extra(
    output: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"tideline_publish.outputs.{output}"
    for name in [*sys.modules]:
        if name.startswith((f"{package}.", f"{ours}.", "tideline.aws_session")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Misconfigured, match=rf"tideline-cdc\[{extra}\]"):
        OUTPUTS[output](context_of(output, GIVEN[output]))


def test_files_are_of_the_form_that_is_set(tmp_path: Path) -> None:
    given = {"folder": str(tmp_path), "format": "parquet"}
    assert isinstance(OUTPUTS["files"](context_of("files", given)), ParquetOutput)
    lines = OUTPUTS["files"](context_of("files", {**given, "format": "lines"}))
    assert not isinstance(lines, ParquetOutput)
