"""Two clocks that ought to agree: the source's and a machine's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
APART_MAX_S = 300.0
"""Seconds by which clocks may differ. NTP keeps them within milliseconds; beyond this, someone has
to look."""


def utc(at_us: int) -> datetime | None:
    """Return µs since 1970 as a moment; None where no calendar has it (before year 1, after
    9999)."""
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return None


def utc_text(at_us: int) -> str:
    """Format µs since 1970 as UTC text, to the second; as a number where no calendar has it."""
    at = utc(at_us)
    return f"{at_us} µs" if at is None else at.strftime("%Y-%m-%d %H:%M:%SZ")


def apart(source_us: int, own_us: int) -> str | None:
    """Describe how far the source's clock is from this machine's (both µs UTC), if by more than
    `APART_MAX_S`. Any integers are accepted."""
    ahead_s = (source_us - own_us) // 1_000_000
    if abs(ahead_s) <= APART_MAX_S:
        return None
    try:
        span = str(timedelta(seconds=abs(ahead_s)))
    except OverflowError:
        span = f"{abs(ahead_s)} s"
    return f"the source's clock is {span} {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
