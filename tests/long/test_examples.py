"""Every example runs by its one command, and finds what it made equal to the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/__main__.py"))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name: str) -> None:
    """With a README next to it, and in the list of all."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "it says what it has shown"
    assert (ROOT / "examples" / name / "README.md").read_text().startswith("# ")
    assert f"[{name}]({name}/)" in (ROOT / "examples" / "README.md").read_text()
