"""The one boundary around log decoders: bytes that cannot be decoded raise CorruptData with a
place, and an event above the limit is refused before it is read.

A log is bytes of another program, over a network and off a disk. Decoders check what they rely on
by name. Any other effect of broken bytes, an index beyond an end, an invalid text, leaves them as
an error of Python or its libraries. Here it becomes an error that an operator can act on. Errors
that already have a name keep it: an unavailable server, a gap, an invariant of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from tideline.contract.errors import CorruptData, Misconfigured

_UNREADABLE = (LookupError, ValueError, ArithmeticError, struct.error, pa.ArrowException)
"""The exceptions of decoders for unexpected bytes; UnicodeDecodeError is a ValueError."""
_HINT = (
    "read that place with the server's own tools, and compare it with the log of another server; if"
    " it is whole there, this is a mistake of this program"
)


@contextmanager
def decoding(position: Callable[[], str]) -> Iterator[None]:
    """Make errors of the block name ``position``: where in the log they arose, such as a file and
    offset.

    The error that became CorruptData stays its cause, so that a traceback shows the line.
    """
    try:
        yield
    except CorruptData as error:
        raise CorruptData(f"{error.message}, {position()}", error.hint or _HINT) from error
    except _UNREADABLE as error:
        kind = type(error).__name__
        raise CorruptData(f"the log cannot be decoded ({kind}), {position()}", _HINT) from error


EVENT_BYTES_MAX = 1 << 30
"""An upper bound of what any server sends."""


def too_large(size: int, limit: int, where: str) -> Misconfigured:
    """Return the error for an event of ``size`` bytes above ``limit``,
    `capture.event_bytes_max`."""
    return Misconfigured(
        f"an event of the source's log has {size} bytes, {where}: above capture.event_bytes_max,"
        f" {limit}",
        hint="raise it, and give the worker six times that memory (docs/DEPLOYMENT.md#memory)",
    )
