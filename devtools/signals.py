"""Signals of programs that stay up until Ctrl-C or SIGTERM, and then end what they started."""

from __future__ import annotations

import signal
from types import FrameType


def interrupt_on_sigterm() -> None:
    """Have SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)


def ignore_interrupts() -> None:
    """Ignore both from here on: a second Ctrl-C would leave half of what runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
