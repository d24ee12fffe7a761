"""Stand-ins, on virtual time, for what the worker's modules take from the standard library.

Only names inside the worker's own modules are exchanged, for the length of a run: their ``time``,
``threading``, ``queue`` and ``uuid``, the pools of threads, and the pauses between a store's
retries. All decisions stay the product's own.
"""

from __future__ import annotations

import functools
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import tideline.store.chain
import tideline_capture.app
import tideline_capture.leadership
import tideline_capture.runtime
from devtools.simulation.scheduler import Process, Signal, Task, World
from tideline_capture.leadership import Lead

NAP_S = 0.05
"""The least length of an idle turn of the session's loop: things gather."""
IDLE_S = 1.0
_STRETCH = 3.0
_SHORT_S = 0.3
"""The shortest polling interval of idle loops here; those that poll faster are slowed to this."""


class Shims:
    """The exchanged names of one run."""

    def __init__(self, world: World, ids: random.Random) -> None:
        self.world = world
        self._ids = ids

    @property
    def process(self) -> Process:
        task = self.world.current
        if task is None:
            raise RuntimeError("no task is running")
        return task.process

    def nap(self, timeout_s: float = IDLE_S) -> None:
        """Wait until something comes for this process; at least for a moment."""
        if not self.world.wait(self.process.stirred, timeout_s):
            return
        self.world.sleep(NAP_S)

    def stir(self, process: Process) -> None:
        self.world.give(process.stirred)

    def uuid4(self) -> Any:
        return SimpleNamespace(hex=f"{self._ids.getrandbits(128):032x}")

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Exchange them in all of the worker's modules."""
        clock = _Clock(self)
        names = {
            "time": clock,
            "threading": SimpleNamespace(
                Event=lambda: Event(self),
                Condition=lambda: Condition(self),
                Lock=threading.Lock,
                Barrier=lambda _: SimpleNamespace(wait=lambda: None),
                Thread=threading.Thread,
                main_thread=threading.main_thread,
                current_thread=lambda: None,
            ),
            "queue": SimpleNamespace(SimpleQueue=lambda: Queue(self), Empty=queue.Empty),
            "uuid": SimpleNamespace(uuid4=self.uuid4),
            "secrets": SimpleNamespace(token_hex=lambda _: self.uuid4().hex),
            "log": _Silence(),
            "ThreadPoolExecutor": lambda *_, **__: Pool(self),
            "Barrier": lambda _: SimpleNamespace(wait=lambda: None),
            "at_once": lambda calls: Pool(self).map(lambda call: call(), calls),
            "stamina": SimpleNamespace(retry_context=self._retry),
            "wait": self._wait_for,
        }
        exchanged: list[tuple[object, str, object]] = [
            (module, name, value)
            for module in _modules()
            for name, value in names.items()
            if name in vars(module)
        ]
        exchanged += [
            (tideline_capture.runtime, "time", _SessionClock(self)),
            (tideline.store.chain, "ThreadPoolExecutor", _InTurn),
            (
                tideline_capture.leadership,
                "Lead",
                lambda link, state: Lead(link, state, clock.monotonic()),
            ),
        ]
        with ExitStack() as stack:
            for target, name, value in exchanged:
                stack.enter_context(patch.object(target, name, value))
            for kind in _threads():
                for name, value in (
                    ("start", self._start),
                    ("join", self._join),
                    ("is_alive", _is_alive),
                ):
                    stack.enter_context(patch.object(kind, name, _method(value), create=True))
            for defaults in _clocks():
                stack.enter_context(patch.dict(defaults, clock=clock.monotonic))
            yield

    # -- threads -------------------------------------------------------------------------------

    def _start(self, thread: Any) -> None:
        thread.simulated = self.world.spawn(self.process, thread.name, thread.run)
        thread.simulated.error_is_told = True

    def _join(self, thread: Any, timeout: float | None = None) -> None:
        task: Task | None = getattr(thread, "simulated", None)
        if task is not None and not task.over:
            self.world.wait(task.ended, timeout)

    def _wait_for(self, futures: list[Any], timeout: float) -> Any:
        """Stand in for `concurrent.futures.wait`."""
        end = self.world.now + timeout
        while open_ := [one for one in futures if not one.task.over]:
            left = end - self.world.now
            if left <= 0:
                break
            self.world.wait(open_[0].task.ended, left)
        return SimpleNamespace(not_done=open_)

    def _retry(self, *, on: type[Exception], timeout: float, **pauses: Any) -> Iterator[Any]:
        """Stand in for `stamina.retry_context`."""
        began, pause = self.world.now, pauses["wait_initial"]
        while True:
            attempt = _Attempt(on, last=self.world.now - began >= timeout)
            yield attempt
            if not attempt.failed:
                return
            self.world.sleep(pause + self.world.random.random() * pauses["wait_jitter"])
            pause = min(pause * 2, pauses["wait_max"])


@functools.cache
def _modules() -> list[ModuleType]:
    """Return the worker's modules, without its core, which needs nothing of this, and real
    sources."""
    rooms = ("tideline_capture.", "tideline.store.")
    strangers = ("tideline_capture.core.", "tideline_capture.sources.")
    return [
        module
        for name, module in sorted(sys.modules.items())
        if name.startswith(rooms) and not name.startswith(strangers)
    ]


@functools.cache
def _threads() -> list[type[threading.Thread]]:
    """Return the worker's classes of threads."""
    kinds = [kind for kind in threading.Thread.__subclasses__() if kind.__module__ in _names()]
    return sorted(kinds, key=lambda kind: kind.__qualname__)


@functools.cache
def _clocks() -> list[dict[str, Any]]:
    """Return defaults that were the real clock when their modules were loaded."""
    kinds = [kind for module in _modules() for kind in vars(module).values()]
    makers = [vars(kind).get("__init__") for kind in kinds if isinstance(kind, type)]
    defaults = [getattr(make, "__kwdefaults__", None) or {} for make in makers]
    return [one for one in defaults if one.get("clock") is time.monotonic]


def _names() -> set[str]:
    return {module.__name__ for module in _modules()}


class Event:
    """A stand-in for `threading.Event`."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims
        self._set = False
        self._given = Signal()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if not self._shims.world.closed:
            self._shims.world.give(self._given)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float) -> bool:
        if not self._set:
            self._shims.world.wait(self._given, _stretched(timeout))
        return self._set


class Condition:
    """A stand-in for `threading.Condition`."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims
        self._given = Signal()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def wait(self, timeout: float) -> None:
        self._shims.world.wait(self._given, timeout)

    def notify_all(self) -> None:
        if not self._shims.world.closed:
            self._shims.world.give(self._given)


class Queue:
    """A stand-in for `queue.SimpleQueue`."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims
        self._items: deque[Any] = deque()
        self._given = Signal()

    def put(self, item: Any) -> None:
        self._items.append(item)
        world = self._shims.world
        if not world.closed:
            world.give(self._given)
            self._shims.stir(self._shims.process)

    def get(self, timeout: float | None = None) -> Any:
        if not self._items and timeout is not None:
            self._shims.world.wait(self._given, _stretched(timeout))
        while not self._items and timeout is None:
            self._shims.world.wait(self._given, None)
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Pool:
    """A stand-in for `ThreadPoolExecutor`: each call is a task."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, call: Callable[..., Any], *given: Any) -> _Future:
        return _Future(self._shims, lambda: call(*given))

    def map(self, call: Callable[..., Any], *given: Any) -> list[Any]:
        return [
            one.result() for one in [self.submit(call, *each) for each in zip(*given, strict=True)]
        ]

    def shutdown(self, **_: object) -> None:
        return None


class _Future:
    def __init__(self, shims: Shims, call: Callable[[], Any]) -> None:
        self._shims = shims
        self._value: Any = None
        self._error: Exception | None = None

        def run() -> None:
            try:
                self._value = call()
            except Exception as error:  # noqa: BLE001 - raised at the waiter, like a pool does
                self._error = error

        self.task = shims.world.spawn(shims.process, "put", run)

    def result(self) -> Any:
        while not self.task.over:
            self._shims.world.wait(self.task.ended, None)
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> None:
        return None


def _stretched(timeout_s: float) -> float:
    return timeout_s * _STRETCH if timeout_s < _SHORT_S else timeout_s


class _InTurn:
    """A pool that calls at once."""

    def __init__(self, *_: object, **__: object) -> None:
        return None

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, call: Callable[..., Any], given: Any) -> Iterator[Any]:
        return map(call, given)


class _Attempt:
    def __init__(self, on: type[Exception], *, last: bool) -> None:
        self.failed = False
        self._on = on
        self._last = last

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        self.failed = isinstance(error, self._on) and not self._last
        return self.failed


class _Clock:
    """A stand-in for `time`, as the calling process has it."""

    def __init__(self, shims: Shims) -> None:
        self._shims = shims

    def monotonic(self) -> float:
        return self._shims.world.now

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def time(self) -> float:
        return 1_700_000_000 + self._shims.world.now + self._shims.process.wall_offset_s

    def sleep(self, seconds: float) -> None:
        self._shims.world.sleep(seconds)


class _SessionClock(_Clock):
    """A clock for the session's loop, which polls; here it sleeps until there is something."""

    def sleep(self, seconds: float) -> None:
        self._shims.nap()


class _Silence:
    def _say(self, *_: object, **__: object) -> None:
        return None

    debug = info = warning = error = _say


def _method(value: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *given, **named: value(self, *given, **named)


def _is_alive(thread: Any) -> bool:
    task: Task | None = getattr(thread, "simulated", None)
    return task is not None and not task.over
