"""Runs pytest for ``make test``, and gives what failed by accident a second chance, alone.

``python -m tests.suite PYTEST-ARGUMENTS…`` runs pytest with these arguments. One to three tests
that fail are run again when all else has ended, in one process, by pytest's own ``--last-failed``.
If they pass then, the run is green: its closing lines name them, and ``.run/flaky.txt`` says why
they failed. More of them, or one that fails again, is red.

Only a test's own failure has that chance. Whatever else makes a run not green may hide tests that
never ran: a file that cannot be collected, a worker that died, a skip that CI does not allow, an
end by a signal. The exit status alone does not tell these apart, so pytest writes down what ran
(`tests/ran.py`). A run whose record is missing is never green.

Run it where ``.run/`` belongs, as make does. Like make, it passes SIGTERM on and leaves Ctrl-C to
the terminal, which gives it to pytest as well: a second one would end pytest while it cleans up.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

RUN = Path(".run")
FLAKY = RUN / "flaky.txt"
STATE = RUN / "suite"
REPORTS = STATE / "failures.txt"
SECOND_CHANCES = 3
NAMES_SHOWN = 20
STATUSES = {
    2: "interrupted, or not all can be collected",
    3: "an error inside pytest",
    4: "it does not know an argument",
    5: "no test was found",
}


@dataclass
class Record:
    """What pytest's own hooks saw of a run."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Why each test that failed did, in a few lines."""
    reports: list[str] = field(default_factory=list)
    """All that pytest has to say of each failure."""
    troubles: list[str] = field(default_factory=list)
    """What is no failure of a test, and no second run of a test can mend."""


def read(path: Path) -> Record:
    return Record(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Outcome:
    """How a run of pytest ended."""

    code: int
    record: Record | None

    @property
    def failed(self) -> dict[str, str]:
        return {} if self.record is None else self.record.failed

    @property
    def passed(self) -> set[str]:
        return set() if self.record is None else {*self.record.passed} - {*self.failed}

    @property
    def troubles(self) -> list[str]:
        """List what a second run cannot mend; a status that nothing explains is among it."""
        found = [] if self.record is None else list(self.record.troubles)
        if self.code < 0:
            found.append(f"pytest was ended by {signal.Signals(-self.code).name}")
        elif self.code > 1:
            found.append(f"pytest ended with {self.code}: {STATUSES.get(self.code, 'unknown')}")
        elif self.record is None:
            found.append(f"pytest ended with {self.code} before its tests had")
        elif self.code != bool(self.failed) and not found:
            found.append(f"pytest ended with {self.code}, and {len(self.failed)} tests failed")
        return found

    @property
    def red(self) -> int:
        """Give the exit status of a run that is not green, as a shell would."""
        return 128 - self.code if self.code < 0 else self.code or 1


def run(arguments: Iterable[str], name: str, *more: str) -> Outcome:
    """Run pytest to its end, and read what it wrote down."""
    record = (STATE / f"{name}.json").resolve()
    # A cache of its own: no other run of pytest changes what failed last.
    own = ["-o", f"cache_dir={record.parent / 'cache'}", "-p", "tests.ran"]
    own += [f"--suite-record={record}", *more]
    code = ended([sys.executable, "-m", "pytest", *arguments, *own])
    if not record.exists():
        print()  # pytest died in the middle of a line
        return Outcome(code, None)
    return Outcome(code, read(record))


def ended(command: Sequence[str]) -> int:
    """Run a command in the foreground and give its exit status; no signal leaves it behind."""
    sys.stdout.flush()
    process = subprocess.Popen(command)

    def pass_on(number: int, _: FrameType | None) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(title: str, names: Collection[str]) -> None:
    """Print how many there are, and their names."""
    print(f"{title}: {len(names)}")
    for name in list(names)[:NAMES_SHOWN]:
        print(f"  {name}")
    if len(names) > NAMES_SHOWN:
        print(f"  and {len(names) - NAMES_SHOWN} more")


def write(path: Path, lines: Iterable[str]) -> None:
    """Write lines, whatever half a character a failed test had in its message."""
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_flaky(flaky: dict[str, str]) -> None:
    lines = [f"flaky: {len(flaky)}"]
    for name, reason in flaky.items():
        lines += [name, *(f"    {line}" for line in reason.splitlines())]
    write(FLAKY, [*lines, f"The whole reports are in {REPORTS}"])


def run_again(arguments: Iterable[str], failed: dict[str, str]) -> int:
    """Run what failed once more, alone, and say what became of it."""
    print(f"\nOnce more, alone: {len(failed)} of what failed")
    # The last of two equal options wins: all that the first run was given holds but the processes.
    selected = ["--last-failed", "--last-failed-no-failures=none", "--numprocesses=0"]
    of = (STATE / "first.json").resolve()
    second = run(arguments, "second", *selected, f"--suite-again={of}")
    flaky = {name: reason for name, reason in failed.items() if name in second.passed}
    if flaky:
        write_flaky(flaky)
        say("flaky", flaky)
    if rest := [name for name in failed if name not in flaky]:
        say("failed, and did not pass alone", rest)
    if second.troubles:
        say("red, for more than failed tests", second.troubles)
    return second.red if rest or second.troubles else 0


def main(arguments: Sequence[str]) -> int:
    """Run the tests, and what failed once more; give the exit status."""
    FLAKY.unlink(missing_ok=True)
    if STATE.exists():
        shutil.rmtree(STATE)
    STATE.mkdir(parents=True)
    first = run(arguments, "first")
    if first.record is not None and first.failed:
        write(REPORTS, first.record.reports)
    if first.troubles:
        say("red, for more than failed tests", first.troubles)
        return first.red
    if not first.failed:
        return 0
    if len(first.failed) > SECOND_CHANCES:
        say(f"failed, and more than the {SECOND_CHANCES} that may run again", first.failed)
        return first.red
    return run_again(arguments, first.failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
