"""Clients under fault tests, whatever the server: they work, reconnect, and are counted."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

_RECONNECT_S = 0.05
_JOIN_S = 60.0


class Client(Protocol):
    """One client's random transactions."""

    def transact(self, connection: Any, cursor: Any) -> None:
        """One transaction."""


class Traffic(ABC):
    """Clients that work until the context ends. ``seed`` and the client's number make them.

    ``refused`` is what a server raises that cannot be reached, ``lost`` when it ends a connection.
    """

    refused: ClassVar[type[Exception]]
    lost: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, *, seed: int, clients: int, pause_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(seed, number), name=f"client-{number}")
            for number in range(clients)
        ]

    @abstractmethod
    def client(self, random_: random.Random, number: int) -> Client:
        """The client of that number."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection without autocommit."""

    @abstractmethod
    def disconnect(self, connection: Any) -> None:
        """End it, whatever state it is in."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the clients; raises what one of them failed with."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(_JOIN_S)
        if self.failure is not None:
            raise self.failure

    def wait_for(self, commits: int, *, timeout_s: float = 60.0) -> None:
        """Return after that many more commits."""
        wanted, end = self.counts["commits"] + commits, time.monotonic() + timeout_s
        while self.counts["commits"] < wanted:
            if self.failure is not None:
                raise self.failure
            if time.monotonic() > end:
                raise TimeoutError(f"the traffic stands still: {dict(self.counts)}")
            time.sleep(0.01)

    def _run(self, seed: int, number: int) -> None:
        client = self.client(random.Random(f"{seed}/{number}"), number)
        try:
            while not self._stopping.is_set():
                self._connected(client)
        except BaseException as error:
            self.failure = error
            raise

    def _connected(self, client: Client) -> None:
        """Work on one connection until the end or until the server ends it."""
        try:
            connection = self.connect()
        except self.refused:
            self._stopping.wait(_RECONNECT_S)
            return
        try:
            with connection.cursor() as cursor:
                while not self._stopping.is_set():
                    client.transact(connection, cursor)
                    self._stopping.wait(self._pause_s)
        except self.lost:
            self.counts["reconnects"] += 1
        finally:
            self.disconnect(connection)
