"""A worker in a process of its own that ends, or stops, itself at a named point.

``python -m tests.faults.worker --config FILE --points FILE [--kill NAME:N] [--stop NAME:N]``

Every point that is reached is written as a line to the points' file before anything is done about
it, so that a test sees that its point was reached. ``--kill`` is SIGKILL at the N-th time, ``--stop``
SIGSTOP. Errors leave the process as they leave ``tideline capture``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from capture.app import run_worker
from console.errors import exit_code, report
from tideline.contract.errors import TidelineError
from tideline.settings import load_settings


class Points:
    """What `run_worker` calls at its points, from any of its threads."""

    def __init__(self, path: Path, deadly: dict[tuple[str, int], signal.Signals]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._deadly = deadly
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            self._reached[name] += 1
            count = self._reached[name]
            os.write(self._file, f"{name} {count}\n".encode())
        number = self._deadly.get((name, count))
        if number is not None:
            os.kill(os.getpid(), number)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--points", type=Path, required=True)
    parser.add_argument("--until-idle", type=float)
    parser.add_argument("--kill", default=None)
    parser.add_argument("--stop", default=None)
    options = parser.parse_args()
    deadly = {}
    for text, number in ((options.kill, signal.SIGKILL), (options.stop, signal.SIGSTOP)):
        if text is not None:
            name, _, count = text.partition(":")
            deadly[name, int(count)] = number
    points = Points(options.points, deadly)
    try:
        run_worker(
            load_settings(options.config), until_idle_s=options.until_idle, on_point=points
        )
    except TidelineError as error:
        print(f"{type(error).__name__}:", file=sys.stderr)
        report(error)
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
