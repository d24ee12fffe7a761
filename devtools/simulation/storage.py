"""The object store, in memory: a client as `ObjectStore` uses it, which may be in trouble.

Requests travel. One takes effect at the store at some moment, whether or not its sender still
lives, and its answer comes later, or never. A create-only PUT has its effect once; what is put may
arrive a second time, late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from obstore.exceptions import AlreadyExistsError, GenericError

from devtools.simulation.scheduler import Signal, World

_OLD = {"last_modified": datetime(2020, 1, 1, tzinfo=UTC)}


def _forget(answer: object) -> None:
    """Ignore an answer that no task waits for."""


class Body:
    """The body of a GET's answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


@dataclass(frozen=True, slots=True)
class Misfortune:
    """The fate of one request. ``error``: the text of the client's error, None for an answer.

    ``effect``: whether the store carries the request out. ``again_s``: the same request arrives
    once more so much later. ``travel_s``: how long the request is in transit, ``answer_s``: the
    answer. ``taken``: a create-only PUT is answered as if something were there.
    """

    error: str | None = None
    effect: bool = True
    again_s: float | None = None
    travel_s: float = 0.0
    answer_s: float = 0.0
    taken: bool = False


Draw = Callable[[str, str], Misfortune]
"""Draws the fate of the next request of this kind (``put``, ``create``, ``get``, …) for this
key."""


@dataclass(eq=False)
class Bucket:
    """The store's content.

    ``ignores_condition``: it lets any client overwrite anything. ``listed`` is what a stale listing
    shows.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    ignores_condition: bool = False
    listed: list[str] | None = None
    counter: dict[str, int] = field(default_factory=dict)
    """A counter that is kept elsewhere, and lost with it; the product has none."""


class SimulatedClient:
    """The client of one process."""

    def __init__(self, world: World, bucket: Bucket, draw: Draw) -> None:
        self._world = world
        self._bucket = bucket
        self._draw = draw

    def put(
        self, path: str, file: bytes, *, mode: Literal["create", "overwrite"], use_multipart: bool
    ) -> object:
        kind = "create" if mode == "create" else "put"

        def effect() -> object:
            objects = self._bucket.objects
            if mode == "create" and path in objects and not self._bucket.ignores_condition:
                return AlreadyExistsError(f"{path}: status code: 412 Precondition Failed")
            objects[path] = bytes(file)
            return None

        return self._request(kind, path, effect)

    def get(self, path: str) -> Any:
        def effect() -> object:
            data = self._bucket.objects.get(path)
            return FileNotFoundError(path) if data is None else Body(data)

        return self._request("get", path, effect)

    def head(self, path: str) -> object:
        def effect() -> object:
            return None if path in self._bucket.objects else FileNotFoundError(path)

        return self._request("head", path, effect)

    def delete(self, paths: str) -> None:
        def effect() -> object:
            gone = self._bucket.objects.pop(paths, None)
            return FileNotFoundError(paths) if gone is None else None

        self._request("delete", paths, effect)

    def list(
        self, prefix: str, *, offset: str | None = None, chunk_size: int = 1_000
    ) -> Iterable[Sequence[Any]]:
        def effect() -> object:
            known = self._bucket.listed
            keys = list(self._bucket.objects) if known is None else known
            found = [key for key in sorted(keys) if key.startswith(prefix + "/")]
            return [
                [
                    {"path": key, "size": len(self._bucket.objects.get(key, b"")), **_OLD}
                    for key in found
                    if key > (offset or "")
                ]
            ]

        found: Iterable[Sequence[Any]] = self._request("list", prefix, effect)
        return found

    def _request(self, kind: str, key: str, effect: Callable[[], object]) -> Any:
        """Send a request, and wait for its answer."""
        world, fate = self._world, self._draw(kind, key)
        answers: list[object] = []
        answered = Signal()

        def arrive() -> None:
            if fate.taken:
                answers.append(AlreadyExistsError("status code: 409 Conflict"))
            elif fate.effect:
                answers.append(effect())
            if fate.again_s is not None:
                world.later(fate.again_s, lambda: _forget(effect()))
            if fate.error is not None:
                answers[:] = [GenericError(fate.error)]
            world.give(answered, after_s=fate.answer_s)

        world.later(fate.travel_s, arrive)
        world.wait(answered, None)
        answer = answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer
