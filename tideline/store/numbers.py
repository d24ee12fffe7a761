"""Finds the newest of objects that are numbered without a gap."""

from __future__ import annotations

from collections.abc import Callable


def newest(exists: Callable[[int], bool], hint: int) -> int:
    """Return the largest number that exists, of numbers that do from 1 on without a gap; 0 for
    none.

    Gallop away from ``hint`` until it lies between two numbers, then bisect.
    """
    known, step = max(hint, 0), 1
    if known == 0 or exists(known):
        low = known
        while exists(known + step):
            low, step = known + step, step * 2
        high = known + step
    else:
        high = known
        while known - step > 0 and not exists(known - step):
            high, step = known - step, step * 2
        low = max(known - step, 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if exists(middle) else (low, middle)
    return low
