"""`python -m devtools demo` is killed: the next one ends what it left behind."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest

from tests.fixtures.terminal import Terminal, ended_by_ctrl_c, lives


@pytest.mark.timeout(1_800)
def test_what_a_killed_demo_left_is_ended_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    left = killed(folder)
    assert len(left) >= 5, "servers, worker, traffic must have been running"
    terminal = Terminal(folder)
    try:
        terminal.read_until("`tideline capture` starts", timeout_s=600)
        assert "ended what an earlier run had left behind" in terminal.text
        assert not list(filter(lives, left))
        assert ended_by_ctrl_c(terminal, folder) == 130, terminal.text
    finally:
        terminal.close()


def killed(folder: Path) -> set[psutil.Process]:
    """Kill a demo once its worker runs, and give the processes that it leaves behind."""
    terminal = Terminal(folder)
    try:
        terminal.read_until("`tideline capture` starts", timeout_s=600)
        demo = _frozen_with_all_on_record(terminal.process.pid, folder)
        left = set(demo.children(recursive=True))
        terminal.process.kill()
        terminal.process.wait(60)
    finally:
        terminal.close()
    return left


def _frozen_with_all_on_record(pid: int, folder: Path) -> psutil.Process:
    """The demo, standing still at a moment when its worker runs and each of its children has its
    pid file: one that is killed between a start and the file leaves what nobody can end."""
    demo, end = psutil.Process(pid), time.monotonic() + 120
    while True:
        demo.suspend()
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        files = {path.name: path.read_text() for path in folder.glob("**/*.pid.json")}
        recorded = {json.loads(text)["child"][0] for text in files.values()}
        started = {child.pid for child in demo.children()}
        if "worker.pid.json" in files and started <= recorded:
            return demo
        demo.resume()
        assert time.monotonic() < end, f"not on record: {started - recorded}"
        time.sleep(0.1)
