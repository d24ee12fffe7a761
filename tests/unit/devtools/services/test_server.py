"""The base of servers: ports that stay, data folders that are made once and removed at the end."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from devtools.services.ports import LOOPBACK, is_listening
from devtools.services.process import Child
from devtools.services.server import DataServer, LoopbackServer
from tideline.contract.errors import Misconfigured, Unavailable

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))"


class Listening(LoopbackServer):
    """A program that listens, and does nothing else."""

    READY_TIMEOUT_S = 30.0
    program = f"{LISTEN}; time.sleep(600)"

    def __init__(self, directory: Path, port: int | None = None) -> None:
        super().__init__(directory, port=port, name="listening")

    def _new_child(self) -> Child:
        command = [sys.executable, "-c", self.program, str(self.port)]
        return Child(self._name, command, run_folder=self._directory)

    def _answers(self) -> bool:
        return is_listening(self.port)


class Keeping(DataServer):
    """The same with a data folder. ``made`` counts how often it was made."""

    NAME: ClassVar[str] = "keeping"
    SETTINGS: ClassVar[Mapping[str, str]] = {}
    MADE: ClassVar[str] = "password"
    fails = False
    made = 0

    def _make_data(self, password: str) -> None:
        self.made += 1
        if self.fails:
            raise Misconfigured("no room")
        self._write("password", password + "\n")

    def _new_child(self) -> Child:
        command = [sys.executable, "-c", Listening.program, str(self.port)]
        return Child(self._name, command, run_folder=self._directory)

    def _answers(self) -> bool:
        return is_listening(self.port)


def test_a_server_keeps_its_port(tmp_path: Path) -> None:
    server = Listening(tmp_path)
    with pytest.raises(Unavailable, match="listening was not started"):
        _ = server.pid
    server.stop()  # nothing to stop
    with server:
        port, pid = server.port, server.pid
        assert server.start().pid == pid
        server.restart()
        assert (server.port, server.pid != pid) == (port, True)
        server.kill()
        assert not server.running
        server.start()
    assert not server.running and not is_listening(port)


def test_a_fixed_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Misconfigured, match=str(port)):
            Listening(tmp_path, port=port).start()


def test_one_that_ends_by_itself_is_not_started(tmp_path: Path) -> None:
    server = Listening(tmp_path)
    server.program = "raise SystemExit('no such table')"
    with pytest.raises(Unavailable, match="no such table"):
        server.start()
    assert not server.running


def test_data_is_made_once_and_removed_at_the_end(tmp_path: Path) -> None:
    with Keeping(tmp_path) as server:
        password, home = server.password, server.data.parent
        server.restart()
        assert (server.made, server.password) == (1, password)
    assert not server.running and not home.exists()


def test_data_that_could_not_be_made_leaves_nothing(tmp_path: Path) -> None:
    server = Keeping(tmp_path)
    server.fails = True
    with pytest.raises(Misconfigured, match="no room"):
        server.start()
    assert not server.data.parent.exists()
