"""Runs the tests, and those that failed once more, alone, when all else has ended.

``python -m tests.suite ARGUMENTS…`` gives the arguments to pytest. One to three failures are run
again in one process (``--last-failed``): if all of them pass then, they failed by accident. The run
is green, its last lines say ``flaky: N`` and their names, and `FLAKY` why each failed: the next
change mends the cause or explains it. Everything else that is no plain success stays red: more
failures, a test that fails again, tests that never ran because a process of the run died, a skip
that is not on the list, an error of collection.

Imports nothing of the project: it is also a plugin of the runs that it starts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

AGAIN_MAX = 3
FLAKY = Path(".run/flaky.txt")
_FOLDER = Path(".run/suite")
_RECORD = "TIDELINE_SUITE_RECORD"
_ALONE = ("--numprocesses=0", "--dist=no", "--last-failed", "--last-failed-no-failures=none")


@dataclass
class Record:
    """What a run did: the tests it was to run, those it ran, and why which of them failed.
    ``refused``: it is red whatever they did."""

    chosen: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    @property
    def never_ran(self) -> set[str]:
        return set(self.chosen) - set(self.ran)


def main(arguments: Sequence[str]) -> int:
    """Run pytest with ``arguments``; 0 when every test passed, at once or alone."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    FLAKY.unlink(missing_ok=True)
    code, first = _run("first", arguments)
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    names = sorted(first.failed)
    never, refused = len(first.never_ran), first.refused
    if never or refused or not 0 < len(names) <= AGAIN_MAX:
        reasons = [f"{never} tests never ran"] * bool(never) + refused
        print(f"red: {'; '.join(reasons) or f'{len(names)} tests failed, too many to run again'}")
        return code
    print(f"{len(names)} failed: once more, alone", flush=True)
    code, second = _run("second", [*arguments, *_ALONE])
    if code != pytest.ExitCode.OK or set(second.ran) != set(names):
        again = sorted(second.failed) or [name for name in names if name not in second.ran]
        print("\n".join([f"red: {len(again)} of {len(names)} did not pass alone either", *again]))
        return code or 1
    _note(first)
    print("\n".join([f"flaky: {len(names)}", *names]))
    return 0


def _note(first: Record) -> None:
    lines = [f"{name}\n    {why}" for name, why in sorted(first.failed.items())]
    FLAKY.write_text("\n".join(lines) + "\n")


def _run(name: str, arguments: Sequence[str]) -> tuple[int, Record]:
    """The exit code of a run and what it did; nothing of the latter if it died."""
    path = (_FOLDER / f"{name}.json").resolve()
    cache = (_FOLDER / "cache").resolve()
    command = [sys.executable, "-m", "pytest", "-p", "tests.suite", "-o", f"cache_dir={cache}"]
    child = subprocess.Popen([*command, *arguments], env={**os.environ, _RECORD: str(path)})

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    found = Record(**json.loads(path.read_text())) if path.exists() else Record()
    return (code if code >= 0 else 128 - code), found


class Recorder:
    """Writes the record of the run that it is a plugin of."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._record = Record()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._record.chosen = [item.nodeid for item in session.items]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._record.chosen = list(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._record.ran.append(report.nodeid)
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = report.longreprtext if crash is None else f"{crash.message}\n"
            lines = [*text.strip().splitlines(), "no reason was given"]
            place = "" if crash is None else f" ({crash.path}:{crash.lineno})"
            self._record.failed.setdefault(report.nodeid, f"{report.when}: {lines[0]}{place}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        guard: Any = self._config.pluginmanager.get_plugin("tideline-skip-guard")
        if guard is not None and guard.unexpected:
            self._record.refused.append(f"unexpected skip: {guard.unexpected[0]}")
        self._path.write_text(json.dumps(vars(self._record)))


def pytest_configure(config: pytest.Config) -> None:
    if _RECORD in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(config, Path(os.environ[_RECORD])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
