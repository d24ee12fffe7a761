"""A worker in a process of its own that ends, or stops, itself at a named point.

Every point that is reached is written as a line to the points' file before anything is done about
it, so that a test sees that its point was reached. Errors leave the process as they leave
``tideline capture``. The process is forked from one that has everything imported.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from capture.app import run_worker
from capture.core import dumps
from capture.sources.mysql import source
from capture.sources.mysql.board import PlacedMarks
from capture.sources.mysql.chunks import RowChunkReader
from capture.sources.postgres.fence import Fence
from console.errors import exit_code, report
from tideline.contract.errors import TidelineError
from tideline.settings import load_settings


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker process is to do. ``deadly``: the signal that it sends itself when it reaches
    a point for the n-th time. ``blind``: without the rule that a chunk must see all that the log
    had before its low mark, which shows what that rule is for."""

    config: Path
    points: Path
    log: Path
    until_idle_s: float | None = None
    deadly: Mapping[tuple[str, int], signal.Signals] = field(default_factory=dict)
    blind: bool = False


class Points:
    """What `run_worker` calls at its points, from any of its threads."""

    def __init__(self, errand: Errand) -> None:
        self._file = os.open(errand.points, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._deadly = errand.deadly
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            self._reached[name] += 1
            count = self._reached[name]
            os.write(self._file, f"{name} {count}\n".encode())
        number = self._deadly.get((name, count))
        if number is not None:
            # To this very thread: it does not come back from the call. A signal to the process is
            # another thread's to take, and this one would go on until that one is scheduled.
            signal.pthread_kill(threading.get_ident(), number)


def work(errand: Errand) -> None:
    """The process: output goes to the log, and the exit code is that of the command."""
    os.setsid()
    log = os.open(errand.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1)
    if errand.blind:
        _go_blind()
    try:
        run_worker(
            load_settings(errand.config),
            until_idle_s=errand.until_idle_s,
            on_point=Points(errand),
        )
    except TidelineError as error:
        print(f"{type(error).__name__}:", file=sys.stderr)
        report(error)
        sys.exit(exit_code(error))


def _go_blind() -> None:
    vars(dumps)["invisible"] = lambda transactions, snapshot: transactions[:0]
    Fence.pass_ = lambda self, on_waiting: None  # type: ignore[method-assign]
    RowChunkReader._check_order = lambda self, cursor: None  # type: ignore[method-assign]
    vars(source)["require_settings"] = lambda connection, **_: None
    PlacedMarks._await_visible = lambda self, cursor, gtids: None  # type: ignore[method-assign]
    PlacedMarks._shows = lambda self, cursor, low: True  # type: ignore[method-assign]
