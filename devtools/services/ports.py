"""Free ports on loopback, and a clear error when a fixed one is taken.

A free port is only free until another program takes it: servers without a fixed port try again with
another one when theirs was lost in between.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from pathlib import Path

from tideline.contract.errors import Misconfigured, Unavailable

LOOPBACK = "127.0.0.1"
_ATTEMPTS = 100
_LAUNCHES = 3
_LOWEST = 10_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

_handed_out: set[int] = set()


def free_port() -> int:
    """Return an unused port that this process has not been given before.

    It avoids the system's range for outgoing connections, where that leaves room: such a
    connection could take it before the server. Raises Unavailable when the machine has none left.
    """
    for _ in range(_ATTEMPTS):
        port = _drawn()
        if port not in _handed_out and is_free(port):
            _handed_out.add(port)
            return port
    raise Unavailable(f"no free port on {LOOPBACK} in {_ATTEMPTS} attempts")


def _drawn() -> int:
    """Return a port below the range of outgoing connections, or in it if there is no other."""
    first = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 0
    if first > _LOWEST + _ATTEMPTS:
        return random.SystemRandom().randrange(_LOWEST, first)
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether a server could listen on ``port`` now, despite connections in TIME_WAIT."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def require_free(port: int, *, what: str) -> int:
    """Return ``port`` if it is free. Raises Misconfigured naming it and ``what`` wanted it."""
    if not is_free(port):
        raise Misconfigured(
            f"port {port} on {LOOPBACK} is taken, {what} cannot listen there",
            hint="stop what listens there (ss -ltnp shows it), or choose another port",
        )
    return port


def launch_on_port(launch: Callable[[int], None], port: int, *, fixed: bool, what: str) -> None:
    """Call ``launch`` with ``port``; unless that is ``fixed``, with another one when a program
    took it in between. Any other failure to start (Unavailable) is final.

    Raises Misconfigured naming ``what`` when a fixed port is taken.
    """
    for attempt in range(_LAUNCHES):
        if fixed:
            require_free(port, what=what)
        try:
            return launch(port)
        except Unavailable:
            if fixed or is_free(port) or attempt == _LAUNCHES - 1:
                raise
            port = free_port()
    return None


def is_listening(port: int) -> bool:
    """Return whether something accepts connections on ``port`` of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
