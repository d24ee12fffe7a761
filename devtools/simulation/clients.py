"""Clients that request and control dumps: each repeats its request until it learns of its
end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import cast

from redis import Redis

from devtools.simulation.redis import SimulatedRedis
from devtools.simulation.scenario import PlannedDump
from devtools.simulation.scene import Scene
from devtools.simulation.scheduler import Process
from devtools.simulation.tables import TABLES, collated
from devtools.simulation.workload import all_keys
from tideline.contract.errors import Unavailable
from tideline.contract.request import Action, Command, DumpRequest, KeyRange
from tideline.control import ControlClient

_REPEAT_S = 4.0


class SimulatedClients:
    """The clients.

    ``waiting`` are the ids of requests whose end is not yet known to their client.
    """

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._process = Process("askers")
        self._client = SimulatedRedis(scene.redis)
        self._requests: dict[str, DumpRequest] = {}
        self._asked_at: dict[str, float] = {}
        self._ended: dict[str, str] = {}
        settings = scene.settings
        self._control_client = ControlClient(
            settings.control, settings.pipeline, client=cast(Redis, self._client)
        )

    def start(self) -> None:
        world = self._scene.world
        for at, dump in enumerate(self._scene.scenario.dumps):
            world.spawn(self._process, f"client {at}", self._life(dump, f"dump-{at}"))
        world.spawn(self._process, "listener", self._listen)

    def waiting(self) -> list[str]:
        return [one for one in self._requests if one not in self._ended]

    def ask(self, request: DumpRequest, *, waits: bool = True) -> None:
        """Send the request; with ``waits`` until it is known to have ended."""
        if waits:
            self._requests[request.request_id] = request
            self._asked_at[request.request_id] = self._scene.world.now
        self._try(lambda: self._control_client.ask(request))

    def repeat_all(self) -> None:
        """Send every request once more."""
        for request in list(self._requests.values()):
            self._try(lambda r=request: self._control_client.ask(r))  # type: ignore[misc]

    def send_raw(self, fields: dict[str, bytes]) -> None:
        self._try(lambda: self._client.xadd("", fields))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Unavailable:
            return
        except Exception as error:
            if type(error).__name__ != "ConnectionError":
                raise

    def _listen(self) -> None:
        """Repeat requests that have had no answer for a while."""
        world = self._scene.world
        while True:
            world.sleep(0.7)
            for request_id in self.waiting():
                self._look(request_id)
            for request_id in self.waiting():
                if world.now - self._asked_at[request_id] > _REPEAT_S:
                    self.ask(self._requests[request_id])

    def _look(self, request_id: str) -> None:
        try:
            answer = self._control_client.answer(request_id)
        except Unavailable:
            return
        if answer is not None and answer.state.final:
            self._ended[request_id] = answer.state.value

    def _life(self, dump: PlannedDump, request_id: str) -> Callable[[], None]:
        """Run one request, and the commands that are given to it."""

        def run() -> None:
            world, own = self._scene.world, random.Random(dump.seed)
            world.sleep(dump.at_s)
            self.ask(make_request(dump, request_id, own))
            asked = world.now
            for at, (after_s, action) in enumerate(dump.commands):
                world.sleep(max(0.0, asked + after_s - world.now))
                self._control(request_id, f"{request_id}-c{at}", action, own)

        return run

    def _control(self, request_id: str, command_id: str, action: str, own: random.Random) -> None:
        """Repeat a command until it is answered.

        A pause that got lost must not be resumed in vain.
        """
        world = self._scene.world
        every = action in ("pause", "resume")
        command = Command(
            command_id,
            Action(action),
            requests=None if every else (request_id,),
            chunk_rows=own.randint(2, 20) if action == "tune" else None,
        )
        for _ in range(60):
            self._try(lambda: self._control_client.command(command))
            for _ in range(4):
                world.sleep(0.7)
                try:
                    answer = self._control_client.answer(command_id)
                except Unavailable:
                    continue
                if answer is not None and answer.state.final:
                    return


def make_request(dump: PlannedDump, request_id: str, own: random.Random) -> DumpRequest:
    """Build the request of a planned dump."""
    table = TABLES[dump.table]
    keys = sorted(all_keys(table), key=collated)
    priority = own.choice((0, 0, 3))
    if dump.scope == "whole":
        return DumpRequest(request_id, (table,), priority=priority)
    if dump.scope == "all":
        return DumpRequest(request_id, ("*.*",))
    texts = tuple((str(key[0]),) for key in keys)
    if dump.scope == "keys":
        chosen = tuple(own.sample(texts, own.randint(1, 8)))
        return DumpRequest(request_id, (table,), keys=chosen, priority=priority)
    low, high = sorted(own.sample(range(len(texts)), 2))
    bounds = KeyRange(texts[low], texts[high])
    given = texts[low:high] if dump.scope == "range-keys" else None
    return DumpRequest(request_id, (table,), key_range=bounds, keys=given, priority=priority)
