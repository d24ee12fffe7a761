"""Events of a log that are larger than the settings allow: a named stop, before they are read any
further."""

from __future__ import annotations

from tideline.contract.errors import Misconfigured

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
