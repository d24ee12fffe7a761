"""Maintains the store while this worker is active: rolls up, and removes unneeded objects.

It runs concurrently with the capture and from what is durable alone. Errors are logged and the work
is retried later; they never end the capture. A worker that has been fenced can do no harm: it
writes what the next one would write, and removes what the next one would remove.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import structlog

from tideline.contract.errors import TidelineError, Unavailable
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.system import System
from tideline_capture.rollup import RollUpLimits, RollUps

_LOOK_S = 5.0
_JOIN_S = 2.0
_FIRST_GARBAGE_S = 600.0
_AFTER_TROUBLE_S = 600.0
_BLOCKS_AT_ONCE = 100
"""Blocks that one search for garbage reads; the next one continues after them."""

_Collect = Callable[[], dict[str, tuple[int, int]]]

log = structlog.get_logger("tideline.maintenance")


class StoreMaintenance:
    """Runs until `stop`, by the settings in force (``current``).

    ``tail`` returns the newest durable manifest's number.
    """

    def __init__(
        self,
        current: Callable[[], Settings],
        store: ObjectStore,
        chain: Chain,
        tail: Callable[[], int],
        system: System,
    ) -> None:
        settings = current()
        self._stopping = system.event()
        self._tail = tail
        self._rollups = RollUps(
            store,
            chain,
            RollUpLimits(
                settings.capture.rollup_part_bytes_max, settings.capture.rollup_file_bytes_max
            ),
            system,
            self._stopping.is_set,
        )
        self._collect: _Collect | None = None
        self._current = current
        self._collects = settings
        self._store = store
        self._system = system
        self._thread = system.thread(self._run, name="maintenance")
        now = system.monotonic()
        self._rollups_at = now
        self._garbage_at = now + min(_FIRST_GARBAGE_S, settings.retention.interval_s)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it between two requests, and wait a little for that."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            self._rollups_at = self._when_due(self._rollups_at, self._roll_up, _LOOK_S)
            interval_s = self._current().retention.interval_s
            due = min(
                self._garbage_at, self._system.monotonic() + interval_s
            )  # it may be another one now
            self._garbage_at = self._when_due(due, self._remove, interval_s)

    def _when_due(self, due: float, work: Callable[[], None], interval_s: float) -> float:
        """Do ``work`` if it is time; return when it is due next."""
        if self._system.monotonic() < due:
            return due
        try:
            work()
        except Unavailable as error:
            if not self._stopping.is_set():
                log.warning("store maintenance waits for a server", reason=str(error))
        except (TidelineError, pa.ArrowException) as error:
            log.error("store maintenance cannot go on; capture does", reason=_words(error))
            return self._system.monotonic() + max(interval_s, _AFTER_TROUBLE_S)
        return self._system.monotonic() + interval_s

    def _roll_up(self) -> None:
        while not self._stopping.is_set():
            block = self._rollups.advance(self._tail())
            if block is None:
                return
            log.info("rolled up", block_number=block.block_number, files=len(block.files))

    def _remove(self) -> None:
        settings = self._current()
        if self._collect is None or settings is not self._collects:
            self._collect = _collector(settings, self._store, self._stopping.is_set, self._system)
            self._collects = settings
        for fate, (objects, size) in self._collect().items():
            log.info("looked for garbage", fate=fate, objects=objects, bytes=size)


def _words(error: Exception) -> str:
    """Return a safe text for ``error``: a library's own text may hold values of rows."""
    return str(error) if isinstance(error, TidelineError) else type(error).__name__


def _collector(
    settings: Settings, store: ObjectStore, stopping: Callable[[], bool], system: System
) -> _Collect:
    """Return a function that searches for garbage once: objects and bytes by fate.

    It does not search where settings say so, or where the warehouse's logs cannot be read because
    the package for it is not installed.
    """
    if not settings.retention.remove:
        return dict
    try:
        from tideline.planner.garbage import Garbage  # needs deltalake
    except ModuleNotFoundError as error:
        log.warning("nothing is removed from the store by this worker", missing=error.name)
        return dict
    garbage = Garbage(settings, store, stopping=stopping)

    def collect() -> dict[str, tuple[int, int]]:
        now = datetime.fromtimestamp(system.wall_us() / 1e6, UTC)
        found = garbage.collect(now, blocks_max=_BLOCKS_AT_ONCE)
        return {fate.value: (found.objects[fate], found.bytes[fate]) for fate in found.objects}

    return collect
