"""Airflow needs a home before it is first imported; these tests have one of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.services.valkey import ValkeyServer
from tests.airflow.stub_worker import StubWorker
from tests.fixtures.settings import as_toml
from tideline.settings import Settings, load_settings

_HOME = tempfile.TemporaryDirectory(prefix="tideline-airflow-home-")
os.environ.setdefault("AIRFLOW_HOME", _HOME.name)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")


@pytest.fixture
def config(tmp_path: Path, pipeline: str, valkey: ValkeyServer) -> Path:
    """A ``tideline.toml`` with the run's Valkey; nothing listens at its source's address."""
    path = tmp_path / "tideline.toml"
    path.write_text(
        as_toml(
            {
                "pipeline": pipeline,
                "source": {"url": "postgresql://tideline:hush-source@127.0.0.1:1/shop"},
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
