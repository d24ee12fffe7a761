"""The example of an outbox runs by its one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_the_example_runs_and_finds_each_order_shipped_once() -> None:
    command = [sys.executable, "-m", "examples.outbox.run"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "48 of 60 orders were paid, and each of them was shipped once" in done.stdout
