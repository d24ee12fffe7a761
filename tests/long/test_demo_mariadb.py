"""`python -m devtools demo --source mariadb --storage files` from end to end."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from devtools.demo.databases.base import NAMES
from tests.fixtures.terminal import DEMO

PLAY_TIMEOUT_S = 2_400


@pytest.mark.timeout(3_000)
def test_the_same_scenes_end_in_equality(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, "--source", "mariadb", "--storage", "files"],
        env={**os.environ, "DEMO_FOLDER": str(tmp_path / "run"), "DEMO_EXIT": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PLAY_TIMEOUT_S,
        check=False,
    )
    found = re.search(r"demo: ok, (\d+) tables, (\d+) rows equal", done.stdout)
    assert done.returncode == 0 and found, done.stdout
    assert int(found[1]) == len(NAMES) and int(found[2]) > 300_000
    damage = re.search(r"(\d+) rows overwritten, (\d+) deleted, (\d+) invented", done.stdout)
    assert damage and all(int(number) > 0 for number in damage.groups())
    assert "tideline_repair merged after" in done.stdout
    changes = re.search(r"([\d,]+) changes: ", done.stdout)
    assert changes and int(changes[1].replace(",", "")) >= 20_000
    assert not list((tmp_path / "run").glob("**/*.pid.json"))
