"""A test that fails by accident is run once more, alone; nothing else that is not green is."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fixtures.terminal import heed_ctrl_c
from tests.suite import Outcome, Record

ROOT = Path(__file__).resolve().parents[2]
PARALLEL = ("--numprocesses=2", "--dist=loadscope", "--max-worker-restart=0")

CONFTEST = """
import os
import pathlib

import pytest

@pytest.fixture(autouse=True)
def first(request):
    ran = pathlib.Path("ran.txt")
    before = ran.read_text().splitlines() if ran.exists() else []
    with ran.open("a") as file:
        file.write(f"{request.node.name} in {os.environ.get('PYTEST_XDIST_WORKER', 'one')}\\n")
    return not any(line.rpartition(" in ")[0] == request.node.name for line in before)
"""
"""``first`` is whether a test runs for the first time."""

FLAKY = """
def test_flaky(first):
    assert not first, "once"
"""
ODD = """
import pytest

@pytest.fixture
def left_open(first):
    yield
    assert not first, "left open"

class TestOdd:
    @pytest.mark.parametrize("text", ["a::b[c", "] \\u00e9\\n/ -k", ""])
    def test_of_text(self, first, text):
        assert not (first and text), "once"

def test_both(first, left_open):
    assert not first, "once"
"""


@dataclass(frozen=True)
class Played:
    folder: Path
    code: int
    output: str

    @property
    def closing(self) -> list[str]:
        """All that is said after pytest's last closing line."""
        lines = self.output.splitlines()
        ends = [n for n, line in enumerate(lines) if re.search(r" in [\d.]+s\b", line)]
        return lines[ends[-1] + 1 if ends else 0 :]

    @property
    def flaky(self) -> str | None:
        path = self.folder / ".run" / "flaky.txt"
        return path.read_text() if path.exists() else None

    @property
    def ran(self) -> list[str]:
        """The names of the tests that ran, in order."""
        lines = (self.folder / "ran.txt").read_text().splitlines()
        return [line.rpartition(" in ")[0] for line in lines]

    @property
    def once(self) -> bool:
        return (
            "Once more" not in self.output and not (self.folder / ".run/suite/second.json").exists()
        )


def prepare(folder: Path, tests: dict[str, str]) -> None:
    """Write tests, under the options that the house's own have."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    (folder / "pytest.ini").write_text(
        f"[pytest]\naddopts = {options['addopts']} -p xdist.plugin\n"
        f"cache_dir = {options['cache_dir']}\n"
    )
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)


def start(folder: Path, *arguments: str, ci: bool = False) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "CI": "true" if ci else ""}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.suite", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )


def play(folder: Path, tests: dict[str, str], *arguments: str, ci: bool = False) -> Played:
    prepare(folder, tests)
    process = start(folder, *arguments, ci=ci)
    output, _ = process.communicate()
    print(output)
    return Played(folder, process.returncode, output)


def test_a_green_run_shows_nothing_of_an_older_one(tmp_path: Path) -> None:
    state = tmp_path / ".run" / "suite"
    (state / "cache/v/cache").mkdir(parents=True)
    (state / "cache/v/cache/lastfailed").write_text('{"test_it.py::test_good": true}')
    for old in (state / "failures.txt", state / "first.json", tmp_path / ".run" / "flaky.txt"):
        old.write_text("of an older run")
    played = play(tmp_path, {"it": "def test_good(): pass"})
    assert played.code == 0
    assert played.output.splitlines()[-1].startswith("1 passed in ")
    assert played.closing == []
    assert played.flaky is None
    assert not (state / "failures.txt").exists()
    assert "lastfailed" not in {path.name for path in state.rglob("*")}
    assert played.ran == ["test_good"]


def test_what_fails_once_is_green_and_named(tmp_path: Path) -> None:
    good = "def test_good(): pass"
    played = play(tmp_path, {"odd": ODD, "good": good}, *PARALLEL, "--durations=3")
    assert played.code == 0
    shorts = ["test_of_text[] \\xe9\\n/ -k]", "test_of_text[a::b[c]", "test_both"]
    names = [f"test_odd.py::TestOdd::{short}" for short in shorts[:2]] + ["test_odd.py::test_both"]
    assert played.closing == ["flaky: 3", *(f"  {name}" for name in names)]
    assert re.search(r"^3 passed, ", played.output, re.M)
    assert played.flaky is not None
    assert all(f"\n{name}\n    AssertionError: once\n" in played.flaky for name in names)
    reports = played.flaky.split()[-1]
    assert "AssertionError: left open" in (tmp_path / reports).read_text()
    again = (tmp_path / "ran.txt").read_text().splitlines()[5:]
    assert sorted(again) == sorted(f"{short} in one" for short in shorts)


OTHERS = """
import pytest

def test_always():
    assert False, "always"

def test_skipped_then(first):
    assert not first, "once"
    pytest.skip("the second time")
"""


def test_what_does_not_pass_alone_is_red(tmp_path: Path) -> None:
    played = play(tmp_path, {"it": FLAKY, "other": OTHERS})
    assert played.code == 1
    assert played.closing == [
        "flaky: 1",
        "  test_it.py::test_flaky",
        "failed, and did not pass alone: 2",
        "  test_other.py::test_always",
        "  test_other.py::test_skipped_then",
    ]
    assert played.flaky is not None
    assert "test_other" not in played.flaky
    assert played.ran == ["test_flaky", "test_always", "test_skipped_then"] * 2


FOUR = """
import pytest

@pytest.fixture(scope="class")
def server():
    raise OSError("no server")

@pytest.mark.usefixtures("server")
class TestFour:
    @pytest.mark.parametrize("number", range(4))
    def test_one(self, number): pass
"""


def test_more_than_three_are_red_at_once(tmp_path: Path) -> None:
    played = play(tmp_path, {"it": FOUR})
    assert played.code == 1
    assert played.closing == [
        "failed, and more than the 3 that may run again: 4",
        *(f"  test_it.py::TestFour::test_one[{number}]" for number in range(4)),
    ]
    assert played.flaky is None
    assert played.once


CRASH = """
import os

def test_crash():
    os._exit(0)
"""
BROKEN = "import nothing_of_this_name"
SKIP = """
import pytest

def test_skip():
    pytest.skip("no reason")
"""
SKIPS = ("-p", "tests.skips")
TROUBLES = {
    "a worker dies": (
        {"it": FLAKY, "other": CRASH},
        PARALLEL,
        1,
        [r"worker gw\d died: .*", r"\d did not run or end, such as test_\w+.py::test_\w+"],
    ),
    "pytest dies as if all were well": (
        {"it": FLAKY, "other": CRASH},
        (),
        1,
        ["pytest ended with 0 before its tests had"],
    ),
    "a file that cannot be imported": (
        {"it": FLAKY, "other": BROKEN},
        PARALLEL,
        1,
        ["cannot be collected: test_other.py"],
    ),
    "a skip": ({"it": SKIP}, SKIPS, 1, ["unexpected skip: test_it.py::test_skip: no reason"]),
    "a skip, and a failure": (
        {"it": FLAKY, "other": SKIP},
        SKIPS,
        1,
        ["unexpected skip: test_other.py::test_skip: no reason"],
    ),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_what_may_hide_more_is_red_at_once(tmp_path: Path, case: str) -> None:
    tests, arguments, code, troubles = TROUBLES[case]
    played = play(tmp_path, tests, *arguments, ci=True)
    assert played.code == code
    assert played.closing[-len(troubles) - 1] == f"red, for more than failed tests: {len(troubles)}"
    for line, trouble in zip(played.closing[-len(troubles) :], troubles, strict=True):
        assert re.fullmatch(f"  {trouble}", line), line
    assert played.flaky is None
    assert played.once


FAILED = Record(failed={"test_it.py::test_bad": "why"})


@pytest.mark.parametrize(
    ("outcome", "red", "troubles"),
    [
        (Outcome(0, Record()), 1, []),
        (Outcome(1, FAILED), 1, []),
        (Outcome(1, Record()), 1, ["pytest ended with 1, and 0 tests failed"]),
        (Outcome(0, FAILED), 1, ["pytest ended with 0, and 1 tests failed"]),
        (Outcome(2, FAILED), 2, ["pytest ended with 2: interrupted, or not all can be collected"]),
        (Outcome(5, Record()), 5, ["pytest ended with 5: no test was found"]),
        (Outcome(-9, FAILED), 137, ["pytest was ended by SIGKILL"]),
        (Outcome(1, None), 1, ["pytest ended with 1 before its tests had"]),
    ],
)
def test_a_status_without_a_reason_is_trouble(
    outcome: Outcome, red: int, troubles: list[str]
) -> None:
    assert outcome.troubles == troubles
    assert outcome.red == red


CHANGING = """
import pathlib

import pytest

@pytest.mark.parametrize("number", [pathlib.Path("ran.txt").exists()])
def test_changing(number):
    assert number

def test_good():
    pass
"""


def test_nothing_but_what_failed_is_run_again(tmp_path: Path) -> None:
    """--last-failed by itself would run all tests here."""
    played = play(tmp_path, {"it": CHANGING})
    assert played.code == 2
    at = played.closing.index("failed, and did not pass alone: 1")
    assert played.closing[at + 1] == "  test_it.py::test_changing[False]"
    assert "  pytest selected other tests than those that failed" in played.closing[at + 2 :]
    assert played.ran == ["test_changing[False]", "test_good"]


SLOW = """
import os
import pathlib
import time

import pytest

@pytest.fixture
def server():
    yield
    pathlib.Path("cleaning").touch()
    time.sleep(0.5)
    pathlib.Path("cleaned").touch()

def test_slow(server):
    pathlib.Path("new").write_text(str(os.getpid()))
    pathlib.Path("new").rename("pid")
    time.sleep(60)
"""


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A run in the middle of a long test, and the process of its pytest."""
    prepare(tmp_path, {"slow": SLOW})
    process = start(tmp_path)
    try:
        wait_for(tmp_path / "pid", process)
        yield process, int((tmp_path / "pid").read_text())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_sigterm_ends_pytest_too(slow: tuple[subprocess.Popen[str], int]) -> None:
    process, tests = slow
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(tests, 0)


def test_ctrl_c_leaves_pytest_the_time_to_clean_up(
    slow: tuple[subprocess.Popen[str], int], tmp_path: Path
) -> None:
    """A terminal gives it to both; the later of the two must not reach pytest once more."""
    process, tests = slow
    os.kill(tests, signal.SIGINT)
    wait_for(tmp_path / "cleaning", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 2
    assert (tmp_path / "cleaned").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(tests, 0)
