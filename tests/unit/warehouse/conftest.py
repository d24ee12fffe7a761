"""What tests of jars share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the jars of a Spark that is put together by the test."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    return jars
