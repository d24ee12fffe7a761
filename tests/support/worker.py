"""A worker in a process of its own that ends, or stops, itself at a named point.

Beside the product's own points there are some that only this rig has: a PUT whose answer the worker
never gets to see, and the middle of a chunk's rows.
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
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tideline.contract.errors import TidelineError
from tideline.settings import Store, load_settings
from tideline.settings.source_kinds import SOURCE_KINDS, SourceKind
from tideline.store.objects import ObjectStore, open_store
from tideline_capture import app
from tideline_capture.app import run_worker
from tideline_capture.core.snapshots import dumps
from tideline_capture.sources.mysql import source
from tideline_capture.sources.mysql.snapshot.chunks import RowChunkReader
from tideline_capture.sources.mysql.snapshot.row_packets import _Reader
from tideline_capture.sources.mysql.watermark_registry import RegistryWatermarks
from tideline_capture.sources.postgres.snapshot.copy import CopiedRows
from tideline_capture.sources.postgres.snapshot.fence import Fence
from tideline_console.capture import followed
from tideline_console.errors import exit_code, report
from tideline_publish.app import run_publisher

HANG = -1


@dataclass(frozen=True, slots=True)
class Errand:
    """What a worker process is to do. ``deadly``: the signal that it sends itself when it reaches a
    point for the n-th time. ``armed``: a file that may appear later and then names a signal and a
    point, at which it sends itself that one when it next gets there; or `HANG` and a point, at
    which the thread that gets there stays for ever. ``put_s``: how long each write to the store
    takes. ``blind``: without the rule that a chunk must see all that the log had before its low
    watermark, which shows what that rule is for. ``kinds``: the sources that the test knows.
    ``publisher``: it publishes, under this name, and does not capture."""

    config: Path
    points: Path
    log: Path
    armed: Path
    until_idle_s: float | None = None
    deadly: Mapping[tuple[str, int], signal.Signals] = field(default_factory=dict)
    blind: bool = False
    put_s: float = 0.0
    kinds: tuple[SourceKind, ...] = ()
    publisher: str | None = None


class Points:
    """What `run_worker` calls at its points, from any of its threads."""

    def __init__(self, errand: Errand) -> None:
        self._file = os.open(errand.points, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._deadly = errand.deadly
        self._armed = errand.armed
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            self._reached[name] += 1
            count = self._reached[name]
            os.write(self._file, f"{name} {count}\n".encode())
            number = self._deadly.get((name, count)) or self._disarmed(name)
        if number == HANG:
            threading.Event().wait()
        elif number is not None:
            # To this very thread: it does not come back from the call. A signal to the process is
            # another thread's to take, and this one would go on until that one is scheduled.
            signal.pthread_kill(threading.get_ident(), number)

    def _disarmed(self, name: str) -> int | None:
        """The signal of the armed file, or `HANG`, if it is for this point: once."""
        if not self._armed.exists():
            return None
        number, _, point = self._armed.read_text().partition(" ")
        if point != name:
            return None
        self._armed.unlink()
        return HANG if number == "HANG" else signal.Signals[number]


def work(errand: Errand) -> None:
    """The process: output goes to the log, and the exit code is that of the command."""
    os.setsid()
    log = os.open(errand.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    faulthandler.register(signal.SIGUSR1)
    if errand.blind:
        _go_blind()
    SOURCE_KINDS.update({kind.name: kind for kind in errand.kinds})
    points = Points(errand)
    _tell_inside_select(points)
    vars(app)["open_store"] = lambda store: _WatchedStore(store, points, errand.put_s)
    try:
        settings = load_settings(errand.config)
        if errand.publisher is not None:
            run_publisher(
                settings, errand.publisher, until_idle_s=errand.until_idle_s, on_point=points
            )
            return
        run_worker(
            settings,
            file=followed(errand.config),
            until_idle_s=errand.until_idle_s,
            on_point=points,
        )
    except TidelineError as error:
        print(f"{type(error).__name__}:", file=sys.stderr)
        report(error)
        sys.exit(exit_code(error))


class _WatchedStore(ObjectStore):
    """The store of the settings, with a point behind each write that had its effect: what follows
    has not heard of it."""

    def __init__(self, settings: Store, on_point: Callable[[str], None], put_s: float) -> None:
        opened = open_store(settings)
        super().__init__(settings, opened._client, root=opened._root)
        self._on_point = on_point
        self._put_s = put_s

    def put(self, key: str, data: bytes) -> None:
        time.sleep(self._put_s)
        super().put(key, data)
        if "/data/" in key:
            self._on_point("part-unanswered")

    def create(self, key: str, data: bytes) -> bool:
        time.sleep(self._put_s)
        created = super().create(key, data)
        if created and "/log/" in key:
            self._on_point("manifest-unanswered")
        return created


def _tell_inside_select(points: Points) -> None:
    """A point at the first row of each chunk."""
    write, begin = CopiedRows.write, _Reader.begin

    def told_write(rows: CopiedRows, row: bytes) -> None:
        if not len(rows):
            points("inside-select")
        write(rows, row)

    def told_begin(reader: Any, head: bytes) -> None:
        begin(reader, head)
        points("inside-select")

    CopiedRows.write = told_write  # type: ignore[method-assign, assignment]
    _Reader.begin = told_begin  # type: ignore[method-assign, assignment]


def _go_blind() -> None:
    vars(dumps)["invisible"] = lambda transactions, snapshot: transactions[:0]
    Fence.pass_ = lambda self, on_waiting: None  # type: ignore[method-assign]
    RowChunkReader._check_order = lambda self, cursor: None  # type: ignore[method-assign]
    vars(source)["require_settings"] = lambda connection, **_: None
    RegistryWatermarks._await_visible = lambda self, cursor, gtids: None  # type: ignore[method-assign]
    RegistryWatermarks._shows = lambda self, cursor, low: True  # type: ignore[method-assign]
