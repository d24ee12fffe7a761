"""The command lines of a machine's processes, which each of its users can read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PAUSE_S = 0.1


class CommandLines:
    """Those of all processes of this machine, looked at again and again while it is `watched`.

    ``telling`` has the programs on whose command line one of ``secrets`` was, ``lines`` those that
    hold one of ``words``.
    """

    def __init__(self, secrets: list[str], words: list[str]) -> None:
        self._secrets = [one.encode() for one in secrets]
        self._words = [one.encode() for one in words]
        self._over = threading.Event()
        self.telling: set[str] = set()
        self.lines: set[bytes] = set()

    def having(self, word: str) -> set[bytes]:
        """Return those of ``lines`` that hold ``word``."""
        return {line for line in self.lines if word.encode() in line}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look until the context ends."""
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE_S):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    line = path.read_bytes()
                except OSError:
                    continue
                if any(one in line for one in self._secrets):
                    self.telling.add(line.partition(b"\0")[0].decode())
                if any(one in line for one in self._words):
                    self.lines.add(line)
