"""How a job begins and ends: with the settings of its environment, which nothing else sees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from tideline.warehouse.hadoop import SETTINGS_VARIABLE, handed_on
from tideline_spark import entry
from tideline_spark.entry import run_job


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """The settings of each session that would be started."""
    seen: list[Mapping[str, str]] = []

    def make(*, app_name: str, others: Mapping[str, str]) -> object:
        assert SETTINGS_VARIABLE not in os.environ, "Python's own workers would inherit it"
        seen.append(others)
        return object()

    monkeypatch.setattr(entry, "make_session", make)
    monkeypatch.setattr(entry, "end_session", lambda _: None)
    return seen


def test_settings_come_from_the_environment(
    started: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"spark.hadoop.fs.s3a.bucket.b.secret.key": "canary"}
    [(name, text)] = handed_on(settings).items()
    monkeypatch.setenv(name, text)
    assert run_job(lambda _: [], name="job", doing="testing") == 0
    assert run_job(lambda _: [], name="job", doing="testing") == 0
    assert started == [settings, {}]


def test_a_variable_that_is_none_of_ours_ends_the_job_by_name(
    started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(SETTINGS_VARIABLE, "canary")
    assert run_job(lambda _: [], name="job", doing="testing") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tideline: Misconfigured: {SETTINGS_VARIABLE} does not hold")
    assert "canary" not in said
    assert started == []
