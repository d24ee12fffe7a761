"""The demo's output: scenes with their start times, progress in place, measured figures.

In a terminal a scene's progress overwrites itself; elsewhere (a log) it is a line every few
seconds, and rarer while nothing changes.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LOG_INTERVAL_S = 5.0
_SAME_INTERVAL_S = 30.0
_CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Prints to ``out``; the clock starts with it."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._began = time.monotonic()
        self._progressed_at = float("-inf")
        self._progress = ""
        self._open = False

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def scene(self, title: str) -> None:
        self._write(f"\n[{self.elapsed_s:6.1f} s] {title}")

    def say(self, text: str) -> None:
        """Print a line of the scene: a figure, a fact."""
        self._write(f"           {text}")

    def plain(self, text: str) -> None:
        """Print a line outside any scene, such as the verdict."""
        self._write(text)

    def progress(self, text: str) -> None:
        """Show the scene's progress; the next output replaces it."""
        now = time.monotonic()
        if self._terminal:
            self._out.write(f"{_CLEAR_LINE}           … {text}")
            self._out.flush()
            self._open = True
            return
        interval_s = _SAME_INTERVAL_S if text == self._progress else _LOG_INTERVAL_S
        if now - self._progressed_at >= interval_s:
            self._progressed_at, self._progress = now, text
            self._write(f"           … {text}")

    def _write(self, text: str) -> None:
        if self._open:
            self._out.write(_CLEAR_LINE)
            self._open = False
        self._out.write(text + "\n")
        self._out.flush()
