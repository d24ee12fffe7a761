"""The worker's `System` on virtual time: its threads are tasks of a process.

Loops that poll are slowed down, so that a run of minutes takes few steps. All decisions stay the
product's own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

from devtools.simulation.scheduler import Process, Signal, Task, World
from tideline.system import Empty, Future, Pool

_NAP_S = 0.05
"""The least length of an idle turn of the session's loop: things gather."""
_IDLE_S = 1.0
_STRETCH = 3.0
_SHORT_S = 0.3
"""The shortest polling interval of idle loops here; those that poll faster are slowed to this."""
_BEGAN_S = 1_700_000_000

T = TypeVar("T")


class SimulatedSystem:
    """The system of ``process``; ``ids`` makes the ids of all processes."""

    def __init__(self, world: World, process: Process, ids: random.Random) -> None:
        self.world = world
        self.process = process
        self._ids = ids

    def monotonic(self) -> float:
        return self.world.now

    def wall_us(self) -> int:
        return int((_BEGAN_S + self.world.now + self.process.wall_offset_s) * 1e9) // 1000

    def pause(self, seconds: float) -> None:
        """Wait until something comes for this process; at least for a moment."""
        if not self.world.wait(self.process.stirred, _IDLE_S):
            return
        self.world.sleep(_NAP_S)

    def new_id(self) -> str:
        return f"{self._ids.getrandbits(128):032x}"

    def lock(self) -> _Lock:
        return _Lock()

    def event(self) -> _Event:
        return _Event(self.world)

    def condition(self) -> _Condition:
        return _Condition(self.world)

    def queue(self) -> _Queue[Any]:
        return _Queue(self.world, self.process)

    def thread(self, run: Callable[[], None], *, name: str) -> _Thread:
        return _Thread(self.world, self.process, run, name)

    def pool(self, size: int, *, name: str) -> Pool:
        return _Pool(self.world, self.process, name)

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        futures = [_Future(self.world, self.process, "at once", call) for call in calls]
        return [future.result() for future in futures]

    def tries(
        self, *, on: type[Exception], timeout: float, wait_initial: float, **pauses: Any
    ) -> Iterator[_Try]:
        """Yield the tries of a request to the store: `stamina.retry_context` by this clock."""
        world, began, pause = self.world, self.world.now, wait_initial
        while True:
            made = _Try(on, last=world.now - began >= timeout)
            yield made
            if not made.failed:
                return
            world.sleep(pause + world.random.random() * pauses["wait_jitter"])
            pause = min(pause * 2, pauses["wait_max"])


class SequentialSystem(SimulatedSystem):
    """A system whose pools run each call when its result is wanted."""

    def pool(self, size: int, *, name: str) -> Pool:
        return _SequentialPool(self.world, self.process, name)


class _Lock:
    """A lock that no task holds while it waits: another one would wait for ever."""

    def __init__(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        if self._held:
            raise RuntimeError("a task waited while it held a lock")
        self._held = True

    def __exit__(self, *_: object) -> None:
        self._held = False


class _Event:
    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._given = Signal()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if not self._world.closed:
            self._world.give(self._given)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._world.wait(self._given, _stretched(timeout))
        return self._set


class _Condition:
    """A condition without a lock: one task runs at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given = Signal()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float) -> None:
        self._world.wait(self._given, timeout)

    def notify_all(self) -> None:
        if not self._world.closed:
            self._world.give(self._given)


class _Queue(Generic[T]):
    """A queue. What is put stirs the process, whose session's loop may be idle."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._items: deque[T] = deque()
        self._given = Signal()

    def put(self, item: T) -> None:
        self._items.append(item)
        if not self._world.closed:
            self._world.give(self._given)
            self._world.give(self._process.stirred)

    def get(self, *, timeout: float | None = None) -> T:
        if not self._items and timeout is not None:
            self._world.wait(self._given, _stretched(timeout))
        while not self._items and timeout is None:
            self._world.wait(self._given, None)
        if not self._items:
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class _Thread:
    def __init__(self, world: World, process: Process, run: Callable[[], None], name: str) -> None:
        self._world = world
        self._process = process
        self._run = run
        self._name = name
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.spawn(self._process, self._name, self._run)

    def join(self, timeout: float | None = None) -> None:
        if self._task is not None and not self._task.over:
            self._world.wait(self._task.ended, timeout)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.over


class _Future(Generic[T]):
    """A call in a task of its own."""

    def __init__(self, world: World, process: Process, name: str, call: Callable[[], T]) -> None:
        self._world = world
        self._values: list[T] = []
        self._error: Exception | None = None

        def run() -> None:
            try:
                self._values.append(call())
            except Exception as error:  # noqa: BLE001 - raised at the waiter, like a pool does
                self._error = error

        self.task = world.spawn(process, name, run)

    def result(self) -> T:
        while not self.task.over:
            self._world.wait(self.task.ended, None)
        if self._error is not None:
            raise self._error
        return self._values[0]

    def cancel(self) -> None:
        return None


class _Pool:
    """A pool of as many threads as it has calls."""

    def __init__(self, world: World, process: Process, name: str) -> None:
        self._world = world
        self._process = process
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, call: Callable[..., T], /, *given: Any) -> _Future[T]:
        return _Future(self._world, self._process, self._name, lambda: call(*given))

    def map(self, call: Callable[[Any], T], given: Iterable[Any], /) -> Iterator[T]:
        futures = [self.submit(call, each) for each in given]
        return (future.result() for future in futures)

    def ended(self, calls: Sequence[Future[Any]], *, timeout_s: float) -> bool:
        end = self._world.now + timeout_s
        tasks = [call.task for call in calls if isinstance(call, _Future)]
        while (running := next((one for one in tasks if not one.over), None)) is not None:
            left = end - self._world.now
            if left <= 0:
                return False
            self._world.wait(running.ended, left)
        return True

    def abandon(self) -> None:
        return None


class _SequentialPool(_Pool):
    def map(self, call: Callable[[Any], T], given: Iterable[Any], /) -> Iterator[T]:
        return map(call, given)


class _Try:
    def __init__(self, on: type[Exception], *, last: bool) -> None:
        self.failed = False
        self._on = on
        self._last = last

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        self.failed = isinstance(error, self._on) and not self._last
        return self.failed


def _stretched(timeout_s: float) -> float:
    return timeout_s * _STRETCH if timeout_s < _SHORT_S else timeout_s
