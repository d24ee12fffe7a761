"""Connections whose other end may disappear silently, whichever driver made them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any
from weakref import WeakSet

KEEPALIVE_IDLE_S = 30
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_COUNT = 3
UNACKNOWLEDGED_MAX_S = 60
"""Probe an idle connection's other end after half a minute, and give it up after three silent
answers. What was sent and not acknowledged for a minute counts as lost."""

_OPTIONS = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
    "TCP_KEEPCNT": KEEPALIVE_COUNT,
    "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MAX_S * 1000,
}


def watch(sock: Any) -> None:
    """Have the kernel notice when the other end is gone, as far as the platform can."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def end(descriptor: int) -> None:
    """End the connection behind ``descriptor``: any thread that waits for it gets an error. The
    descriptor stays its owner's, to be closed there."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as sock:
        _shut(sock)


def stays_here(descriptor: int) -> bool:
    """Return whether the connection behind ``descriptor`` does not leave this machine, as far as
    this machine can see: a tunnel begins here, too."""
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        if sock.family == socket.AF_UNIX:
            return True
        try:
            address = ip_address(sock.getpeername()[0].partition("%")[0])
        except OSError:  # It has ended in the meantime, and the next statement reports so.
            return False
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
    return bool((mapped or address).is_loopback)


@contextmanager
def answered(descriptor: int, within_s: float) -> Iterator[None]:
    """End the connection behind ``descriptor`` if the block is not over ``within_s`` from now.

    The kernel's own time-outs do not see a server that is gone behind a proxy or a balancer, which
    acknowledges everything."""
    try:
        sock = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # It has ended already, and the next statement there will report so.
        yield
        return
    with sock:
        timer = threading.Timer(within_s, _shut, (sock,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class Opened:
    """The connections that a source has made, as long as they are in use; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: WeakSet[Any] = WeakSet()

    def add(self, connection: Any) -> None:
        with self._lock:
            self._connections.add(connection)

    def take(self) -> list[Any]:
        """Return all of them, and forget them."""
        with self._lock:
            taken = list(self._connections)
            self._connections.clear()
        return taken
