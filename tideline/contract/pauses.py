"""The pause before something that failed is tried again."""

from __future__ import annotations

_DOUBLINGS_MAX = 64


def growing_pause_s(failures: int, *, first_s: float, most_s: float) -> float:
    """Return the pause after so many ``failures`` before this one, in seconds: twice as long each
    time, from ``first_s`` to ``most_s``."""
    return min(most_s, first_s * 2.0 ** min(failures, _DOUBLINGS_MAX))
