"""Failures by accident, and all that must not be taken for one; by runs of pytest in a folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEVERAL = ("-p", "xdist.plugin", "--numprocesses=2", "--max-worker-restart=0")
ONCE = """
import pathlib
import pytest

def fails_once(name):
    mark = pathlib.Path(name)
    if not mark.exists():
        mark.touch()
        raise AssertionError("not yet")
"""


def suite(
    folder: Path, text: str, *arguments: str, ci: str = "", again: bool = False
) -> subprocess.CompletedProcess[str]:
    if not again:
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_one.py").write_text(ONCE + text)
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ("-p", "tests.skips", *(arguments or ("-p", "xdist.plugin")))
    return subprocess.run(
        [sys.executable, "-m", "tests.suite", "-q", *plugins, "test_one.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


FLAKY = """
@pytest.mark.parametrize("odd", ["a b", "[x]::y", "ä\\\\n"])
def test_flaky(odd):
    fails_once(f"mark-{ord(odd[0])}")

def test_good():
    pass
"""


@pytest.mark.parametrize("arguments", [(), SEVERAL], ids=["one process", "several"])
def test_what_passes_alone_is_flaky(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = suite(tmp_path, FLAKY, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    at = lines.index("flaky: 3")
    assert len(lines[at:]) == 4 and all(
        "test_one.py::test_flaky[" in one for one in lines[at + 1 :]
    )
    assert any("3 passed" in one for one in lines[:at])
    noted = (tmp_path / ".run/flaky.txt").read_text()
    assert noted.count("::test_flaky[") == 3 and noted.count("not yet") == 3
    green = suite(tmp_path, "", *arguments, again=True)
    assert green.returncode == 0 and "flaky" not in green.stdout
    assert not (tmp_path / ".run/flaky.txt").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "def test_bad():\n    assert 0\ndef test_flaky():\n    fails_once('m')\n",
            "red: 1 of 2 did not pass alone either\ntest_one.py::test_bad",
        ),
        (
            "@pytest.mark.parametrize('n', range(4))\ndef test_n(n):\n    fails_once(f'm{n}')\n",
            "red: 4 tests failed, too many to run again",
        ),
        ("import nothing_of_the_kind\n", "ModuleNotFoundError"),
        (
            "@pytest.fixture\ndef torn():\n    yield\n    assert 0\n"
            "def test_torn(torn):\n    pass\n",
            "red: 1 of 1 did not pass alone either\ntest_one.py::test_torn",
        ),
    ],
    ids=["fails again", "too many", "collection", "teardown"],
)
def test_what_stays_red(tmp_path: Path, text: str, said: str) -> None:
    done = suite(tmp_path, text)
    assert done.returncode != 0
    assert said in done.stdout
    assert "flaky:" not in done.stdout and not (tmp_path / ".run/flaky.txt").exists()


def test_a_fixture_that_failed_once_is_flaky(tmp_path: Path) -> None:
    text = "@pytest.fixture\ndef late():\n    fails_once('m')\ndef test_late(late):\n    pass\n"
    done = suite(tmp_path, text)
    assert done.returncode == 0 and done.stdout.endswith("flaky: 1\ntest_one.py::test_late\n")


@pytest.mark.parametrize("flaky", ["fails_once('m')", "pass"], ids=["and a flaky one", "alone"])
def test_a_skip_that_is_not_on_the_list_stays_red(tmp_path: Path, flaky: str) -> None:
    text = f"def test_skipped():\n    pytest.skip('no reason')\ndef test_other():\n    {flaky}\n"
    done = suite(tmp_path, text, ci="true")
    assert done.returncode == 1 and "red: unexpected skip: test_one.py" in done.stdout


def test_tests_that_never_ran_because_a_process_died_are_not_forgotten(tmp_path: Path) -> None:
    text = (
        "import os, time\ndef test_dies():\n    if not pathlib.Path('m').exists():\n"
        "        pathlib.Path('m').touch()\n        os._exit(1)\n"
        "@pytest.mark.parametrize('n', range(30))\ndef test_n(n):\n    time.sleep(0.02)\n"
    )
    done = suite(tmp_path, text, *SEVERAL)
    assert done.returncode != 0, done.stdout
    assert "tests never ran" in done.stdout and "flaky:" not in done.stdout
