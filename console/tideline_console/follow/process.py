"""The session process of a merger, as its supervisor holds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from tideline_console.follow.messages import Beat, LineBuffer, Order, line
from tideline_console.follow.open_plans import OpenPlans
from tideline_console.follow.replacing import SessionHealth

_READ_BYTES = 65_536
PROGRAM = "tideline_console.follow.session_process"


class SessionProcess:
    """A process of its own group, which Java is in, too; killed as a whole. ``program`` is the
    module that it runs."""

    def __init__(self, config: Path | None, program: str = PROGRAM) -> None:
        self._pipe, end = os.pipe()
        os.set_blocking(self._pipe, False)
        named = [] if config is None else ["--config", str(config)]
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", program, "--beats", str(end), *named],
                stdin=subprocess.PIPE,
                pass_fds=(end,),
                start_new_session=True,
            )
        finally:
            os.close(end)
        self._lines = LineBuffer()
        self.health = SessionHealth(0)
        self.plans = OpenPlans()
        self.reserved: list[str] = []

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._child.returncode

    def beats(self) -> list[Beat]:
        """Return the beats that have come."""
        found: list[Beat] = []
        with suppress(BlockingIOError):
            while data := os.read(self._pipe, _READ_BYTES):
                found += [msgspec.json.decode(raw, type=Beat) for raw in self._lines.feed(data)]
        return found

    def give(self, order: Order) -> None:
        """Give an order; a process that has ended gets none."""
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(line(order))
            self._child.stdin.flush()

    def ended(self) -> bool:
        return self._child.poll() is not None

    def kill(self) -> None:
        """End the process and its Java, whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        with suppress(BrokenPipeError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        with suppress(OSError):
            os.close(self._pipe)
