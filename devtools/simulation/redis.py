"""Redis, in memory: as much of a stream, keys and a sorted set as the control queue uses.

The worker's own `RequestQueue` and the client's own `ControlClient` use it. It may be away, answer
late, forget the writes of the last second, or everything.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis as library

from devtools.simulation.scheduler import World


@dataclass(slots=True)
class _Entry:
    fields: dict[bytes, bytes]
    claimed_by: str | None = None
    claimed_at: float = 0.0


@dataclass(slots=True)
class _Content:
    stream: dict[str, _Entry] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    grouped: bool = False


class Server:
    """The server; every client talks to it."""

    def __init__(self, world: World) -> None:
        self.up = True
        self.delay_s = 0.0
        self.world = world
        self.content = _Content()
        self._entries = 0

    def flush(self) -> None:
        """Run FLUSHALL."""
        self.content = _Content()

    def restart(self, down_s: float) -> None:
        """Restart the server, which keeps its data."""
        self.up = False

        def back() -> None:
            self.up = True

        self.world.later(down_s, back)

    def replica(self) -> _Content:
        """Return what a replica has by now."""
        return copy.deepcopy(self.content)

    def fail_over(self, replica: _Content) -> None:
        """Promote a replica that lacks what came since."""
        self.content = replica

    def next_id(self) -> str:
        self._entries += 1
        return f"{int(self.world.now * 1000)}-{self._entries}"


class SimulatedRedis:
    """The part of a client that `RequestQueue` and `ControlClient` use."""

    def __init__(self, server: Server, on_claim: Callable[[], None] = lambda: None) -> None:
        self._server = server
        self._on_claim = on_claim

    def eval(self, script: str, count: int, stream: str, *given: Any) -> list[Any]:
        """Run the claim: idle entries first, then new ones (see `tideline_capture.queue`)."""
        content, world = self._ask(), self._server.world
        _, consumer, most, idle_ms, _, bytes_max, *names = given
        content.grouped = True
        found: list[Any] = []
        for entry_id, entry in content.stream.items():
            idle = world.now - entry.claimed_at >= int(idle_ms) / 1000
            if len(found) < int(most) and (entry.claimed_by is None or idle):
                entry.claimed_by, entry.claimed_at = consumer, world.now
                found.append(_measured(entry_id, entry, int(bytes_max), names))
        if found:
            self._on_claim()
        return [b"0-0", found]

    def xadd(self, stream: str, fields: dict[str, bytes], **_: object) -> None:
        content = self._ask()
        raw = {name.encode(): bytes(value) for name, value in fields.items()}
        content.stream[self._server.next_id()] = _Entry(raw)

    def get(self, key: str) -> bytes | None:
        return self._ask().keys.get(key)

    def set(self, key: str, value: bytes, **_: object) -> None:
        self._ask().keys[key] = bytes(value)

    def pipeline(self, **_: object) -> _Pipeline:
        return _Pipeline(self)

    def close(self) -> None:
        return None

    def forget(self, ids: tuple[str, ...]) -> None:
        content = self._ask()
        for entry_id in ids:
            content.stream.pop(entry_id, None)

    def _ask(self) -> _Content:
        server = self._server
        if server.delay_s:
            server.world.sleep(server.delay_s)
        if not server.up:
            raise library.ConnectionError("Connection refused.")
        return server.content


class _Pipeline:
    """A pipeline. Of its commands only the removal of entries, and a worker's status, matter
    here."""

    def __init__(self, client: SimulatedRedis) -> None:
        self._client = client
        self._removed: tuple[str, ...] = ()

    def xdel(self, stream: str, *ids: str) -> None:
        self._removed = ids

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None

    def execute(self) -> None:
        self._client.forget(self._removed)


def _measured(entry_id: str, entry: _Entry, bytes_max: int, names: list[str]) -> list[Any]:
    size, value, field_ = -1, b"", b""
    for name in names:
        raw = entry.fields.get(name.encode())
        if raw is not None:
            size, field_ = len(raw), name.encode()
            value = raw if size <= bytes_max else b""
    return [entry_id.encode(), size, value, field_]
