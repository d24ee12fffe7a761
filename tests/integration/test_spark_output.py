"""What `tideline merge`, `rebuild`, `verify` and `maintain` print: all run Spark in one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from tideline_console.spark import spark_session
from tideline.contract.errors import Misconfigured
from tideline.settings import make_settings

values = {"pipeline": "p", "source": {"url": "postgresql://u@h/d"}, "store": {"url": "memory://x"}}
values |= {"warehouse": {"url": "file:///none"}, "merge": {"driver_memory": "1g"}}
with spark_session(make_settings(values), "merge") as session:
    print("rows", session.range(5).count(), flush=True)
    session._jvm.System.out.println("Deleted 5 files")
    session._jvm.System.err.println("log4j:WARN nobody's concern")
    if sys.argv[1] == "ours":
        raise Misconfigured("of ours")
    if sys.argv[1] == "theirs":
        raise RuntimeError("of theirs")
print("end", flush=True)
"""


@pytest.mark.parametrize("end", ["well", "ours", "theirs"])
def test_nothing_of_sparks_unless_it_fails(end: str) -> None:
    """Not at the start, and not while it runs; where Spark fails in words that are not ours, what
    it said last is shown."""
    command = [sys.executable, "-c", SCRIPT, end]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    if end == "well":
        assert (done.stdout, done.stderr) == ("rows 5\nend\n", "")
        return
    assert done.stdout == "rows 5\n"
    assert ("nobody's concern" in done.stderr) == (end == "theirs")
