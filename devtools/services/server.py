"""The life of a server for tests and demo: start, stop, crash, restart, and its data folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from devtools.services.folders import reachable_folder
from devtools.services.ports import free_port, launch_on_port
from devtools.services.private_file import write_private
from devtools.services.process import STOP_TIMEOUT_S, Child, unprivileged_account
from tideline.contract.errors import Unavailable


class Service(ABC):
    """Something to start and to stop; a context manager that closes it."""

    @abstractmethod
    def start(self) -> Self:
        """Start and wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """End it in order; safe to call twice."""

    def close(self) -> None:
        """End it for good."""
        self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class LoopbackServer(Service):
    """One program that listens on a port of loopback.

    ``directory`` holds its log and pid file. Without ``port`` a free one is chosen; either is kept
    across restarts.
    """

    READY_TIMEOUT_S: ClassVar[float] = 60.0
    STOP_SIGNAL: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, directory: Path, *, port: int | None, name: str) -> None:
        self._directory = directory
        self._name = name
        self._fixed_port = port is not None
        self._child: Child | None = None
        self.port = port if port is not None else free_port()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """The process id; Unavailable when it was never started."""
        return self._started().pid

    def start(self) -> Self:
        """Start and wait until it answers; Unavailable when it does not."""
        if not self.running:
            self._bring_up()
            self._fixed_port = True  # clients know it from now on
        return self

    def stop(self) -> None:
        """End it in order (all is flushed); by force when it hangs."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S, how=self.STOP_SIGNAL)

    def kill(self) -> None:
        """Kill (SIGKILL) it and its descendants: a crash."""
        self._started().kill()

    def restart(self) -> None:
        """Stop it and start it on the same port."""
        self.stop()
        self.start()

    @abstractmethod
    def _new_child(self) -> Child:
        """Make the child that listens on ``port``, not started yet."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it is ready for clients."""

    def _bring_up(self) -> None:
        launch_on_port(self._launch, self.port, fixed=self._fixed_port, what=self._name)

    def _launch(self, port: int) -> None:
        self.port = port
        child = self._new_child()
        child.start()
        self._child = child
        try:
            child.wait_until(self._answers, timeout_s=self.READY_TIMEOUT_S)
        except Unavailable:
            child.kill()
            raise

    def _started(self) -> Child:
        if self._child is None:
            raise Unavailable(f"{self._name} was not started")
        return self._child


class DataServer(LoopbackServer):
    """A server with a data folder, which is made once and removed when the context ends.

    Databases refuse root, so root starts them as ``nobody``: the data lies in ``directory`` unless
    that user cannot reach it. Clients connect with a password, made with the data folder.
    ``settings`` are the server's variables; they win over `SETTINGS`.
    """

    NAME: ClassVar[str]
    SETTINGS: ClassVar[Mapping[str, str]]
    MADE: ClassVar[str]
    """A file in the home folder that is there once the data folder is complete."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        name = name or self.NAME
        super().__init__(directory, port=port, name=name)
        self._account = unprivileged_account()
        self._settings = {**self.SETTINGS, **(settings or {})}
        self._home = reachable_folder(directory, self._account) / f"{name}-home"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._home / "data"

    @property
    def password(self) -> str:
        """The superuser's password, made when the data folder was."""
        return (self._home / "password").read_text().strip()

    def make(self) -> Self:
        """Make the data folder, unless it is there."""
        if not (self._home / self.MADE).exists():
            shutil.rmtree(self._home, ignore_errors=True)
            self._home.mkdir(mode=0o700, parents=True)
            self._own(self._home)
            try:
                self._make_data(secrets.token_hex(16))
            except BaseException:
                shutil.rmtree(self._home, ignore_errors=True)
                raise
        return self

    def remove(self) -> None:
        """End it and remove its data."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def close(self) -> None:
        self.remove()

    @abstractmethod
    def _make_data(self, password: str) -> None:
        """Fill the home folder; Misconfigured when the server's programs fail."""

    def _bring_up(self) -> None:
        self.make()
        super()._bring_up()

    def _write(self, name: str, text: str) -> Path:
        """Write a file in the home folder that only the server's account reads."""
        path = self._home / name
        write_private(path, text)
        self._own(path)
        return path

    def _own(self, path: Path) -> None:
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end in the home folder, as the server's account."""
        account = self._account
        return subprocess.run(
            list(command),
            cwd=self._home,
            env=environment,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
