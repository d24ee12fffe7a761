"""Free ports on loopback, and a clear error when a fixed one is taken.

A free port is only free until somebody else takes it: servers that were not given a fixed port
try again with another one when theirs was lost in between.
"""

from __future__ import annotations

import socket

from tideline.contract.errors import Misconfigured, Unavailable

LOOPBACK = "127.0.0.1"
_ATTEMPTS = 100

_handed_out: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on, and that this process has not been given before.

    Raises Unavailable when the machine has none left.
    """
    for _ in range(_ATTEMPTS):
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in _handed_out:
            _handed_out.add(port)
            return port
    raise Unavailable(f"no free port on {LOOPBACK} in {_ATTEMPTS} attempts")


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` now; connections in TIME_WAIT do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def require_free(port: int, *, what: str) -> int:
    """``port``, or Misconfigured naming the port and what wanted it."""
    if not is_free(port):
        raise Misconfigured(
            f"port {port} on {LOOPBACK} is taken, {what} cannot listen there",
            hint="stop what listens there (ss -ltnp shows it), or choose another port",
        )
    return port


def is_listening(port: int) -> bool:
    """Whether something accepts connections on ``port`` of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
