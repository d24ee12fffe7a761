"""The example of a search index runs by its one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_the_example_runs_and_finds_the_index_equal() -> None:
    command = [sys.executable, "-m", "examples.search_index.run"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "documents are what a join of the three tables gives" in done.stdout
