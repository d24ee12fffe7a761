"""`tideline demo` from end to end: killed once, then played to its end in a terminal.

One run serves all assertions, because it takes minutes: what a SIGKILL left behind is ended by the
next start; the whole line ends in equality; one damaged value is found; Ctrl-C leaves nothing.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from console.demo.damage import damage_one_value
from console.demo.databases.base import NAMES
from console.demo.traffic import read_report

PROGRAM = Path(sys.executable).parent / "tideline"
PLAY_TIMEOUT_S = 2_400
STOP_TIMEOUT_S = 300


class Terminal:
    """The demo in a pseudo-terminal; ``text`` is what it has printed."""

    def __init__(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.text = ""
        self.process = subprocess.Popen(
            [str(PROGRAM), "demo"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "DEMO_FOLDER": str(folder), "DEMO_EXIT": ""},
            start_new_session=True,
            # A run of tests in the background ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        os.close(theirs)

    def read_until(self, wanted: str, *, timeout_s: float) -> None:
        """Return when ``wanted`` was printed; fail with all text when it is not."""
        end = time.monotonic() + timeout_s
        while wanted not in self.text:
            assert time.monotonic() < end, f"{wanted!r} was not printed:\n{self.text}"
            if not self._read(1.0) and self.process.poll() is not None:
                pytest.fail(f"the demo ended with {self.process.returncode}:\n{self.text}")

    def finish(self, *, timeout_s: float) -> int:
        """Its exit code."""
        end = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the demo does not end:\n{self.text}"
            self._read(0.2)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        os.close(self._ours)

    def _read(self, wait_s: float) -> bool:
        if not select.select([self._ours], [], [], wait_s)[0]:
            return False
        try:
            read = os.read(self._ours, 65_536)
        except OSError:  # the other side is closed
            return False
        self.text += read.decode(errors="replace")
        return bool(read)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def killed(folder: Path) -> set[psutil.Process]:
    """The processes that a demo left behind which was killed once its worker ran."""
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


@pytest.fixture(scope="module")
def played(folder: Path, killed: set[psutil.Process]) -> Iterator[Terminal]:
    """A demo that has played to its end and stays up."""
    terminal = Terminal(folder)
    try:
        terminal.read_until("Ctrl-C ends it all", timeout_s=PLAY_TIMEOUT_S)
        yield terminal
    finally:
        terminal.close()


@pytest.mark.timeout(3_000)
def test_what_a_killed_demo_left_is_ended_by_the_next(
    killed: set[psutil.Process], played: Terminal
) -> None:
    assert len(killed) >= 5, "servers, worker, traffic must have been running"
    assert "ended what an earlier run had left behind" in played.text
    alive = [process for process in killed if process.is_running()]
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(3_000)
def test_source_and_warehouse_are_equal_at_the_end(played: Terminal) -> None:
    found = re.search(r"demo: ok, (\d+) tables, (\d+) rows equal", played.text)
    assert found, played.text
    assert int(found[1]) == len(NAMES) >= 6
    assert int(found[2]) > 300_000


@pytest.mark.timeout(3_000)
def test_the_traffic_was_what_is_promised(played: Terminal, folder: Path) -> None:
    report = read_report(folder / "traffic.json")
    assert report is not None and report.finished
    assert report.rate >= 200, report
    assert report.changes >= 20_000, report
    assert report.rolled_back and report.savepoints_undone and report.changed_keys
    assert f"{report.changes:,} changes" in played.text


@pytest.mark.timeout(3_000)
def test_damage_was_done_and_healed_through_airflow(played: Terminal) -> None:
    damage = re.search(r"(\d+) rows overwritten, (\d+) deleted, (\d+) invented", played.text)
    assert damage and all(int(number) > 0 for number in damage.groups())
    assert "tideline_repair merged after" in played.text


@pytest.mark.timeout(3_000)
def test_airflow_stays_up_with_the_login_that_is_printed(played: Terminal) -> None:
    found = re.search(r"Airflow: (http://\S+)  user (\S+)  password (\S+)", played.text)
    assert found, played.text
    login = f'{{"username": "{found[2]}", "password": "{found[3]}"}}'.encode()
    request = urllib.request.Request(
        f"{found[1]}/auth/token", data=login, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


@pytest.mark.timeout(3_000)
def test_one_damaged_value_is_found(played: Terminal, folder: Path) -> None:
    again = [sys.executable, "-m", "console.demo.compare"]
    equal = _compare(again, folder)
    assert equal.returncode == 0 and "demo: ok" in equal.stdout, equal.stdout + equal.stderr
    damage_one_value((folder / "warehouse").as_uri())
    damaged = _compare(again, folder)
    assert damaged.returncode == 1, damaged.stdout + damaged.stderr
    assert "demo: FAILED, 1 differences in 1 tables" in damaged.stdout
    assert "column total: has another value" in damaged.stdout


@pytest.mark.timeout(3_000)
def test_ctrl_c_ends_it_with_0_and_leaves_no_process(played: Terminal, folder: Path) -> None:
    family = psutil.Process(played.process.pid).children(recursive=True)
    assert len(family) >= 5
    played.process.send_signal(signal.SIGINT)
    assert played.finish(timeout_s=STOP_TIMEOUT_S) == 0, played.text
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, alive
    assert not list(folder.glob("**/*.pid.json"))
    mine = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(folder) in word for word in process.info["cmdline"] or [])
    ]
    assert not mine


def _compare(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, str(folder / "tideline.toml")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_a_source_that_there_is_not_is_named() -> None:
    done = subprocess.run(
        [str(PROGRAM), "demo", "--source", "oracle"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "postgres, mariadb" in done.stderr, done.stderr
