"""Airflow needs a home before it is first imported; these tests have one of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.services.valkey import ValkeyServer
from tests.airflow.no_source import NoSource
from tests.airflow.stub_worker import StubWorker
from tests.airflow.task_log import TaskLog, logged
from tests.fixtures.settings import as_toml
from tideline.settings import Settings, load_settings

_HOME = tempfile.TemporaryDirectory(prefix="tideline-airflow-home-")
os.environ.setdefault("AIRFLOW_HOME", _HOME.name)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")


@pytest.fixture
def source() -> Iterator[NoSource]:
    """Nobody may connect to it, and nobody knows its password."""
    with NoSource() as made:
        yield made
        assert made.visitors() == 0, "who is on Airflow's side connected to the source"


@pytest.fixture
def config(tmp_path: Path, pipeline: str, valkey: ValkeyServer, source: NoSource) -> Path:
    """A ``tideline.toml`` as Airflow's containers have it: the file with the source's password is
    named, and is the worker's alone."""
    path = tmp_path / "tideline.toml"
    path.write_text(
        as_toml(
            {
                "pipeline": pipeline,
                "source": {"url": source.url, "password_file": "/nowhere/source_password"},
                "store": {"url": (tmp_path / "store").as_uri()},
                "control": {"url": valkey.url()},
                "warehouse": {"url": (tmp_path / "warehouse").as_uri()},
            }
        )
    )
    return path


@pytest.fixture
def settings(config: Path) -> Settings:
    return load_settings(config)


@pytest.fixture
def worker(settings: Settings) -> Iterator[StubWorker]:
    """A worker that takes requests and finishes each at once, unless told otherwise."""
    with StubWorker(settings) as stub:
        yield stub


@pytest.fixture
def task_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[TaskLog]:
    """What the tasks of a test log."""
    with logged(caplog, capfd) as found:
        yield found
