"""Stops a program on a signal, whatever it is waiting for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from tideline.system import Event, System

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_S = 0.1
GRACE_S = 2.0
"""The time for work in progress to end by itself: then nothing is left half done."""

T = TypeVar("T")


def stop_on_signals(stopping: Event) -> None:
    """Set ``stopping`` on SIGTERM, SIGINT, and SIGHUP (sent when a terminal is closed).

    A signal that `nohup` or a shell ignores stays ignored. Does nothing in any thread but the main
    one.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN or number is signal.SIGTERM:
            signal.signal(number, lambda *_: stopping.set())


def unless_stopped(stopping: Event, call: Callable[[], T], system: System) -> T | None:
    """Return or raise the result of ``call``; None once ``stopping`` was set for `GRACE_S` before
    that.

    ``call`` runs in a separate thread, which is then left behind, to end with the process, as if it
    had been killed there. A server that does not answer would keep it for a minute, and container
    runtimes wait for half of one.
    """
    done: list[T] = []
    failed: list[BaseException] = []
    over = system.event()

    def run() -> None:
        try:
            done.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting caller
            failed.append(error)
        finally:
            over.set()

    system.thread(run, name="start").start()
    while not over.wait(_LOOK_S):
        if stopping.is_set() and not over.wait(GRACE_S):
            return None
    if failed:
        raise failed[0]
    return done[0]
