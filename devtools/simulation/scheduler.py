"""Virtual time and scheduling: many tasks, one at a time, in an order that the seed decides.

A task is the plain, blocking code of the product, run in a greenlet: wherever it would wait (for an
answer, a queue, a clock) it gives way to the task whose moment comes next. Nothing here depends on
real time, threads or hash order, so the same seed gives the same run.

Tasks belong to processes. A process can be killed, which no ``finally`` of its tasks outlives, and
stopped for a while as by SIGSTOP: its tasks then wake late, all at once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import greenlet

EVENTS_MAX = 3_000_000
"""The limit of steps. A run that takes more does not end."""


class Endless(Exception):
    """An error: the run took more steps than a run may take."""


class Process:
    """A program on some host, with its own wall clock. ``terminate`` is what SIGTERM does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.wall_offset_s = 0.0
        self.stirred = Signal()
        self.terminate: Callable[[], None] | None = None
        self.tasks: list[Task] = []
        self.deferred: list[tuple[Task, int, bool]] = []


@dataclass(eq=False)
class Signal:
    """A signal for tasks to wait on; every one that waits is woken."""

    waiters: list[tuple[Task, int]] = field(default_factory=list)


class Task:
    """One thread of a process. ``ended`` is given when it is over; ``error`` is what ended it."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.over = False
        self.error: BaseException | None = None
        self.ended = Signal()
        self.turn = 0
        self.thread: greenlet.greenlet


class World:
    """The clock and the event queue. ``now`` is in seconds."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.steps = 0
        self.closed = False
        self.current: Task | None = None
        self.on_error: Callable[[Task, BaseException], None] = _raise
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._counted = 0
        self._tasks: list[Task] = []
        self._hub = greenlet.getcurrent()

    # -- what tasks do -------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Let others run for ``seconds``."""
        self.wait(None, seconds)

    def wait(self, signal: Signal | None, timeout_s: float | None) -> bool:
        """Wait for ``signal``; False after ``timeout_s`` without it."""
        task = self.current
        if task is None or self.closed:
            raise greenlet.GreenletExit
        task.turn += 1
        turn = task.turn
        if signal is not None:
            signal.waiters.append((task, turn))
        if timeout_s is not None:
            self.later(timeout_s, lambda: self._resume(task, turn, False))
        elif signal is None:
            raise ValueError("a wait without an end")
        return bool(self._hub.switch())

    def give(self, signal: Signal, *, after_s: float = 0.0) -> None:
        """Wake all that wait for ``signal``."""
        waiters, signal.waiters = signal.waiters, []
        for task, turn in waiters:
            if task.turn == turn:
                self.later(after_s, lambda t=task, n=turn: self._resume(t, n, True))  # type: ignore[misc]

    def spawn(self, process: Process, name: str, run: Callable[[], None]) -> Task:
        """Begin a task of ``process``, now."""
        task = Task(process, name)

        def body(_: object = None) -> None:
            try:
                run()
            except greenlet.GreenletExit:
                return
            except BaseException as error:  # noqa: BLE001 - the run's owner judges it
                task.error = error
                if not self.closed:
                    self.on_error(task, error)
            finally:
                task.over = True
                if not self.closed:
                    self.give(task.ended)

        task.thread = greenlet.greenlet(body, parent=self._hub)
        process.tasks.append(task)
        self._tasks.append(task)
        self.later(0.0, lambda: self._resume(task, 0, True))
        return task

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Have ``act`` done after ``seconds``; it must not wait."""
        self._counted += 1
        heapq.heappush(self._queue, (self.now + seconds, self._counted, act))

    # -- processes -----------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """Kill ``process`` as by SIGKILL.

        A task that kills its own process gets no further than its next wait.
        """
        process.alive = False
        if self.current is not None and self.current.process is process:
            self.wait(None, 0.0)

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        process.frozen = False
        deferred, process.deferred = process.deferred, []
        for task, turn, given in deferred:
            self.later(0.0, lambda t=task, n=turn, g=given: self._resume(t, n, g))  # type: ignore[misc]

    # -- the loop ------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Let things happen until ``until``, which is called after every step."""
        while self._queue and not until():
            self.steps += 1
            if self.steps > EVENTS_MAX:
                raise Endless(f"no end after {EVENTS_MAX} steps, at {self.now:.1f} s")
            moment, _, act = heapq.heappop(self._queue)
            self.now = max(self.now, moment)
            act()

    def close(self) -> None:
        """End every task that is left, so that none runs when it is collected."""
        self.closed = True
        self._queue.clear()
        for task in self._tasks:
            if not task.thread.dead and task.thread:
                task.thread.throw(greenlet.GreenletExit)

    def _resume(self, task: Task, turn: int, given: bool) -> None:
        process = task.process
        if task.turn != turn or task.over or not process.alive:
            return
        if process.frozen:
            process.deferred.append((task, turn, given))
            return
        self.current = task
        try:
            task.thread.switch(given)
        finally:
            self.current = None


def _raise(task: Task, error: BaseException) -> None:
    raise error
