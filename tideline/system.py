"""Time, threads and ids, as one value that is passed to what needs them.

A program makes one `RealSystem` where it starts. The simulator makes its own `System`, on virtual
time. There is no current one to look up: an object that waits, or reads a clock, is given it.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Empty = queue.Empty
"""Raised by `Queue.get` when nothing came in time."""


class Event(Protocol):
    """A flag to wait for, as `threading.Event`."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float) -> bool:
        """Return whether it is set, at the latest after ``timeout`` seconds."""


class Condition(Protocol):
    """A lock whose holder can wait for a change, as `threading.Condition`."""

    def __enter__(self) -> object: ...

    def __exit__(self, *error: Any) -> object: ...

    def wait(self, timeout: float) -> object: ...

    def notify_all(self) -> None: ...


class Queue(Protocol[T]):
    """An unbounded queue between threads, as `queue.SimpleQueue`."""

    def put(self, item: T) -> None: ...

    def get(self, *, timeout: float | None = None) -> T:
        """Return the next item; raise `Empty` after ``timeout`` seconds (None: wait for ever)."""

    def empty(self) -> bool: ...

    def qsize(self) -> int: ...


class Thread(Protocol):
    """A daemon thread that was made and not started yet, as `threading.Thread`."""

    def start(self) -> None: ...

    def join(self, timeout: float | None = None) -> None: ...

    def is_alive(self) -> bool: ...


class Future(Protocol[T_co]):
    """A call that a pool runs."""

    def result(self) -> T_co:
        """Wait for its end; return what the call returned, raise what it raised."""

    def cancel(self) -> object:
        """Do not run it, if it has not begun."""


class Pool(Protocol):
    """Threads that run calls; leaving its context waits for them."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> object: ...

    def submit(self, call: Callable[..., T], /, *given: Any) -> Future[T]: ...

    def map(self, call: Callable[[Any], T], given: Iterable[Any], /) -> Iterator[T]:
        """Run ``call`` with each of ``given``; yield the results in that order."""

    def ended(self, calls: Sequence[Future[Any]], *, timeout_s: float) -> bool:
        """Return whether all of ``calls`` have ended, at the latest after ``timeout_s``."""

    def abandon(self) -> None:
        """Cancel what has not begun, and wait for nothing."""


class System(Protocol):
    """The clocks, threads and ids of one process."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def wall_us(self) -> int:
        """Return µs since 1970 by this machine's clock, which may be set back."""

    def pause(self, seconds: float) -> None:
        """Let others work: the wait of a loop that found nothing to do."""

    def new_id(self) -> str:
        """Return 32 hexadecimal digits that no other call returns, in any process."""

    def lock(self) -> AbstractContextManager[Any]: ...

    def event(self) -> Event: ...

    def condition(self) -> Condition: ...

    def queue(self) -> Queue[T]: ...

    def thread(self, run: Callable[[], None], *, name: str) -> Thread: ...

    def pool(self, size: int, *, name: str) -> Pool: ...

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Run each of ``calls`` in its own thread, begun at the same moment; return their results.

        Raises what the first of them raised. Unlike a pool's, the threads do not keep an ending
        process alive.
        """


class RealSystem:
    """The system of this process."""

    __slots__ = ()

    # Called without a frame of ours, many times a second.
    monotonic = staticmethod(time.monotonic)

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def new_id(self) -> str:
        return uuid.uuid4().hex

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def event(self) -> Event:
        return threading.Event()

    def condition(self) -> Condition:
        return threading.Condition()

    def queue(self) -> Queue[T]:
        made: queue.SimpleQueue[T] = queue.SimpleQueue()
        return made

    def thread(self, run: Callable[[], None], *, name: str) -> Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def pool(self, size: int, *, name: str) -> Pool:
        return _RealPool(size, thread_name_prefix=name)

    def at_once(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        barrier = threading.Barrier(len(calls))
        results: list[futures.Future[T]] = [futures.Future() for _ in calls]

        def run(call: Callable[[], T], result: futures.Future[T]) -> None:
            try:
                barrier.wait()
                result.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
                result.set_exception(error)

        for call, result in zip(calls, results, strict=True):
            threading.Thread(target=run, args=(call, result), name="at once", daemon=True).start()
        return [result.result() for result in results]


class _RealPool(futures.ThreadPoolExecutor):
    def ended(self, calls: Sequence[Any], *, timeout_s: float) -> bool:
        return not futures.wait(calls, timeout_s).not_done

    def abandon(self) -> None:
        self.shutdown(wait=False, cancel_futures=True)
