"""Keeps a merger going: its lease, its status, what it is asked to run, and its session process.

One merger of a pipeline merges; others wait until its lease ends, and take over. A merger whose
process was paused for longer finds the lease taken, and ends its session before it looks at
anything else. What that session was in the middle of meanwhile is refused by the table's own log,
or was applied once. Without Redis the holder goes on. Where only it is cut off from Redis, another
one takes the lease: then two merge until it sees Redis again, each change once, and one in vain.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from tideline.contract.errors import Unavailable
from tideline.control.merger import Lease, MergerQueue, MergerStatus
from tideline.control.reservation import ReservedTables
from tideline.programs.stopping import stop_on_signals
from tideline.settings import Settings
from tideline.settings.spark import heap_bytes
from tideline.system import RealSystem
from tideline_console.errors import EXIT_MISCONFIGURED
from tideline_console.follow.log import set_up_log
from tideline_console.follow.messages import Beat, Order
from tideline_console.follow.process import PROGRAM, SessionProcess
from tideline_console.follow.replacing import Pauses, SessionHealth

TICK_S = 0.25
RENEW_S = 1.0
WAIT_S = 1.0
"""The interval at which a waiting merger looks at the lease."""
STOP_S = 20.0
"""The time that plans which have begun are given to end. Containers are given 30 s."""
REDIS_S = 2.0
_MEMORY_BEYOND_HEAP = 2 * 1024**3

log = structlog.get_logger("tideline.merger")
T = TypeVar("T")


def run(settings: Settings, config: Path | None, program: str = PROGRAM) -> int:
    """Merge until a signal to stop; return the exit status. ``program`` holds the session."""
    set_up_log()
    name = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    queue = MergerQueue(settings.control, settings.pipeline, name, timeout_s=REDIS_S)
    try:
        return Supervisor(settings, queue, name, lambda: SessionProcess(config, program)).run()
    finally:
        queue.close()


class Supervisor:
    """One merger; ``name`` is the token of its lease, ``begin`` begins a session process."""

    def __init__(
        self,
        settings: Settings,
        queue: MergerQueue,
        name: str,
        begin: Callable[[], SessionProcess],
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._name = name
        self._begin = begin
        self._stopping = RealSystem().event()
        self._away = False
        self._renewed_s = float("-inf")
        self._pauses = Pauses()
        self._replaced = 0
        self._reason: str | None = None
        self._started_at_us = time.time_ns() // 1_000
        self._handed_s = float("-inf")
        self._reserved = ReservedTables()

    def run(self) -> int:
        """Wait for the lease, merge while it is held; return the exit status."""
        stop_on_signals(self._stopping)
        while not self._stopping.is_set():
            if not self._wait_for_lease():
                break
            code = self._lead()
            if code:
                return code
        log.info("stopped")
        return 0

    def _wait_for_lease(self) -> bool:
        """Return whether the lease is held; False once a signal to stop came."""
        waits = False
        while not self._stopping.is_set():
            found = self._try(self._queue.renew)
            if found is Lease.HELD:
                log.info("merges from here on; starts its Spark session", merger=self._name)
                return True
            if found is Lease.TAKEN and not waits:
                waits = True
                log.info("another merger of this pipeline merges; this one waits to take over")
            self._stopping.wait(WAIT_S)
        return False

    def _lead(self) -> int | None:
        """Keep a session process until the lease is lost (None), or for good: the exit status."""
        while True:
            process = self._begin()
            try:
                reason = self._attend(process)
            finally:
                process.kill()
            if self._stopping.is_set() or reason is None:
                self._try(self._queue.release)
                return 0 if self._stopping.is_set() else None
            if process.status == EXIT_MISCONFIGURED and process.health.beat is None:
                self._try(self._queue.release)
                return EXIT_MISCONFIGURED
            pause_s = self._pauses.next_s(process.health.age_s)
            self._replaced, self._reason = self._replaced + 1, reason
            log.warning("the Spark session is replaced", reason=reason, pause_s=pause_s)
            if not self._keep(pause_s):
                return None

    def _attend(self, process: SessionProcess) -> str | None:
        """Attend to a session process until it has to be replaced (the reason), the lease is lost,
        or a signal to stop came and it has ended (None)."""
        health = process.health = SessionHealth(_memory_max(self._settings))
        looked_s, stopped_s = time.monotonic(), None
        while True:
            now_s = time.monotonic()
            health.step(now_s - looked_s)
            looked_s = now_s
            for beat in process.beats():
                if health.beat is None:
                    log.info("has a Spark session", seconds=round(health.age_s, 1))
                health.hear(beat)
                process.plans.note(beat)
            if not self._holds(health.beat):
                log.warning("another merger has taken over; this one ends its session")
                return None
            ended = process.ended()
            if self._stopping.is_set():
                if stopped_s is None:
                    stopped_s = now_s
                    log.info("stops once the plans that have begun are at their ends")
                    process.give(Order(stop=True))
                if ended or health.beat is None or now_s - stopped_s > STOP_S:
                    return None
            elif ended:
                return f"its process ended with {process.status}"
            elif (why := health.sick()) is not None:
                return why
            elif health.beat is not None:
                self._hand_on(process)
            if stopped_s is None:
                self._stopping.wait(TICK_S)
            else:
                time.sleep(TICK_S)

    def _hand_on(self, process: SessionProcess) -> None:
        """Hand on what is asked, and record what the process runs."""
        if time.monotonic() - self._handed_s < RENEW_S:
            return
        self._handed_s = time.monotonic()
        self._hand_on_reserved(process)
        asked = self._try(self._queue.asked)
        if asked is None:
            return
        plans = process.plans
        if new := plans.new(asked):
            process.give(Order(run=tuple(new)))
        begun, over = plans.unrecorded(), plans.over()
        if begun and self._did(lambda: self._queue.began(begun)):
            plans.recorded(begun)
        if over and self._did(lambda: self._queue.ended(over)):
            plans.removed(over)

    def _hand_on_reserved(self, process: SessionProcess) -> None:
        reserved, lapsed = self._reserved.at(self._try(self._queue.reserved), time.monotonic())
        if lapsed:
            self._try(lambda: self._queue.lapsed(lapsed))
        if reserved != process.reserved:
            log.info("tables are left to rebuilds", tables=reserved)
            process.give(Order(reserved=tuple(reserved)))
            process.reserved = reserved

    def _holds(self, beat: Beat | None) -> bool:
        """Renew the lease and publish the status where that is due; return whether the lease may
        be held still."""
        if time.monotonic() - self._renewed_s < RENEW_S:
            return True
        found = self._try(self._queue.renew)
        if found is Lease.TAKEN:
            return False
        if found is not None:
            self._renewed_s = time.monotonic()
            self._try(lambda: self._queue.publish(self._status(beat)))
        return True

    def _keep(self, pause_s: float) -> bool:
        """Pause, with the lease; return whether it is held still."""
        end_s = time.monotonic() + pause_s
        while time.monotonic() < end_s and not self._stopping.is_set():
            if not self._holds(None):
                return False
            self._stopping.wait(TICK_S)
        return True

    def _status(self, beat: Beat | None) -> MergerStatus:
        known = beat or Beat()
        return MergerStatus(
            merger=self._name,
            pipeline=self._settings.pipeline,
            state="starting" if beat is None else "merging",
            host=socket.gethostname(),
            pid=os.getpid(),
            started_at_us=self._started_at_us,
            updated_at_us=time.time_ns() // 1_000,
            manifest_number=known.manifest_number,
            tables_merged=known.tables_merged,
            merged_at_us=known.merged_at_us,
            waiting=known.waiting,
            plans=known.plans,
            failing=known.failing,
            memory_bytes=known.memory_bytes,
            replaced=self._replaced,
            reason=self._reason,
            reserved=known.reserved,
        )

    def _did(self, call: Callable[[], None]) -> bool:
        """Call ``call``; return whether Redis was there."""

        def done() -> bool:
            call()
            return True

        return self._try(done) is not None

    def _try(self, call: Callable[[], T]) -> T | None:
        """Return what ``call`` does; None where Redis is away, which is logged once."""
        try:
            found = call()
        except Unavailable as error:
            if not self._away:
                log.warning("the queue is away", reason=error.message, hint=error.hint)
            self._away = True
            return None
        self._away = False
        return found


def _memory_max(settings: Settings) -> int:
    merge = settings.merge
    return merge.follow_memory_bytes_max or heap_bytes(merge.driver_memory) + _MEMORY_BEYOND_HEAP
