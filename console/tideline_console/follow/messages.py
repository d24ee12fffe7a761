"""The messages between the supervisor and its session process: a line of JSON each.

The supervisor writes `Order` lines to the process's standard input, whose end means that it is
gone; the process writes `Beat` lines to a pipe of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

EXIT_SICK = 70
"""The exit status of a session process whose session does not answer, or without a supervisor."""


class Beat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a session process, written while its session answers.

    ``plans`` it runs or will run, ``ended`` those that it does no more since the beat before;
    ``failures_in_a_row`` are table merges that failed since one did not; ``reserved`` tables are
    left alone by now; ``memory_bytes`` is the resident memory of Python and Java. See
    `MergerStatus` for the others.
    """

    manifest_number: int = 0
    tables_merged: int = 0
    merged_at_us: int | None = None
    waiting: int = 0
    plans: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    failing: dict[str, str] = msgspec.field(default_factory=dict)
    failures_in_a_row: int = 0
    reserved: tuple[str, ...] = ()
    memory_bytes: int = 0


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """``run`` these stored plans; leave the ``reserved`` tables alone, and no others (None: as
    before); ``stop`` once what has begun is at its end."""

    run: tuple[str, ...] = ()
    reserved: tuple[str, ...] | None = None
    stop: bool = False


class LineBuffer:
    """Puts lines together from the pieces that a pipe gives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that ``data`` completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from whole


def line(message: Beat | Order) -> bytes:
    return msgspec.json.encode(message) + b"\n"
