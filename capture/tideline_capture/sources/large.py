"""Events of a log that are larger than the settings allow: a stop by name, before they are read
any further."""

from __future__ import annotations

from tideline.contract.errors import Misconfigured

EVENT_BYTES_MAX = 1 << 30
"""What no server sends more than."""


def too_large(size: int, limit: int, where: str) -> Misconfigured:
    """An event of ``size`` bytes is above ``limit``, `capture.event_bytes_max`."""
    return Misconfigured(
        f"an event of the source's log has {size} bytes, {where}: above capture.event_bytes_max,"
        f" {limit}",
        hint="raise it, and give the worker six times that memory (docs/DEPLOYMENT.md#memory)",
    )
