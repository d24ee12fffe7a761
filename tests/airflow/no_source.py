"""A place where the source would be: it answers nobody, and knows who came."""

from __future__ import annotations

import socket
from contextlib import closing
from types import TracebackType
from typing import Self


class NoSource:
    """Listens at ``url``, which has no password. A connection is taken by the kernel at once, so
    that nobody who tried can be missed, whatever process it was."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._socket.setblocking(False)
        port = self._socket.getsockname()[1]
        self.url = f"postgresql://tideline@127.0.0.1:{port}/shop"

    def visitors(self) -> int:
        """How many have connected since it was asked last."""
        count = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return count
            with closing(connection):
                count += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
