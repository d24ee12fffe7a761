"""The life of a MySQL or MariaDB server: data folder, start, stop, crash, freeze.

The two differ in the origin of the programs, the making of a data folder and a few settings: see
`MariadbServer` and `MysqlServer`. Clients connect over loopback. A server keeps the id that it got
with its data folder.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import quote

import pymysql

from devtools.services.folders import can_enter, copy_once, shared_folder
from devtools.services.ports import LOOPBACK
from devtools.services.process import Child
from devtools.services.server import DataServer
from tideline.contract.errors import Misconfigured

SUPERUSER = "root"
_SOCKET_PATH_MAX = 100

SETTINGS: Mapping[str, str] = {
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "log_bin_trust_function_creators": "ON",
    "character_set_server": "utf8mb4",
    "default_time_zone": "+00:00",
    "skip_name_resolve": "ON",
    "performance_schema": "OFF",
    "innodb_buffer_pool_size": "64M",
    "max_allowed_packet": "256M",
    "max_connections": "200",
}
"""The settings of every server here, unless the caller's ``settings`` override them."""

NOT_DURABLE: Mapping[str, str] = {"sync_binlog": "0", "innodb_flush_log_at_trx_commit": "2"}
"""For data that may be lost with the machine: demo and tests. A killed server loses nothing."""


class BinlogServer(DataServer):
    """One server; its kind's `SETTINGS` begin with those of all."""

    READY_TIMEOUT_S = 180.0
    MADE: ClassVar[str] = "made"
    SCHEME: ClassVar[str]
    CLEARED: ClassVar[str] = ""
    """Statements that remove the accounts without a password that a new data folder comes with."""

    @property
    def server_id(self) -> int:
        """The server's id in its binlog, made when the data folder was."""
        return int((self._home / "server-id").read_text())

    @property
    def socket(self) -> Path:
        """The server's local socket; in the temporary folder when the data folder's path is long.

        A socket's path may have 107 bytes only.
        """
        path = self._home / "socket"
        if len(str(path)) < _SOCKET_PATH_MAX:
            return path
        name = hashlib.sha256(str(self._home.absolute()).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tideline-{name}.socket"

    def begin_as(self, made: BinlogServer) -> Self:
        """Begin with a copy of the data folder of ``made``, which was made and never started: a
        tenth of the time that making one takes. The password is the same, the server's ids are not.
        """
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(made._home), str(self._home)], check=True)
        (self.data / "auto.cnf").unlink(missing_ok=True)  # MySQL's server uuid
        self._write("server-id", f"{_new_id()}\n")
        return self

    def stop(self) -> None:
        if self._child is not None:
            self._child.send(signal.SIGCONT)
        super().stop()

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Shut down and start on the same port, with ``settings`` changed from now on."""
        self.stop()
        self._settings.update(settings or {})
        self.start()

    def freeze(self) -> None:
        """Stop it from doing anything (SIGSTOP): connections stay open and nothing answers."""
        self._started().freeze()

    def thaw(self) -> None:
        """Let a frozen server continue."""
        self._started().send(signal.SIGCONT)

    def remove(self) -> None:
        """End it without a flush, and remove its data."""
        if self._child is not None:
            self._child.kill()
        self.socket.unlink(missing_ok=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, user: str = SUPERUSER, password: str | None = None, database: str = "") -> str:
        """Return the server's address with the password; the superuser's when none is given."""
        secret = self.password if password is None else password
        return (
            f"{self.SCHEME}://{quote(user, safe='')}:{quote(secret, safe='')}"
            f"@{LOOPBACK}:{self.port}/{quote(database, safe='')}?ssl-mode=DISABLED"
        )

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """Open a superuser's connection in autocommit, without TLS (PyMySQL tries that first).

        ``options`` are PyMySQL's; the caller closes.
        """
        login = {"user": SUPERUSER, "password": self.password, "autocommit": True}
        where = {"host": LOOPBACK, "port": self.port, "charset": "utf8mb4", "ssl_disabled": True}
        return pymysql.connect(**{**where, **login, **options})

    def run(self, *statements: str) -> None:
        """Run statements as the superuser."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query, as the superuser."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    @abstractmethod
    def _programs(self) -> Path:
        """Return the programs' folder, fetched when missing; Unavailable when it cannot be."""

    @abstractmethod
    def _server_command(self, root: Path) -> list[str]:
        """Return the server's command up to its options, for programs in ``root``."""

    @abstractmethod
    def _first_command(self, root: Path, statements: Path) -> list[str]:
        """Return the command that makes the data folder and runs the file ``statements`` in it."""

    @abstractmethod
    def _libraries(self, root: Path) -> str:
        """Return the value of LD_LIBRARY_PATH."""

    def _root(self) -> Path:
        root = self._programs()
        if self._account is None or can_enter(root, self._account):
            return root
        return copy_once(
            (root,), below=root.parent, target=shared_folder(self._account) / root.name
        ) / (root.name)

    def _make_data(self, password: str) -> None:
        root = self._root()
        # No binlog is written yet, so servers made here may replicate from each other.
        statements = (
            f"{self.CLEARED}FLUSH PRIVILEGES;\n"
            f"ALTER USER '{SUPERUSER}'@'localhost' IDENTIFIED BY '{password}';\n"
            f"CREATE USER '{SUPERUSER}'@'{LOOPBACK}' IDENTIFIED BY '{password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO '{SUPERUSER}'@'{LOOPBACK}' WITH GRANT OPTION;\n"
        )
        self._write("password", password + "\n")
        self._write("server-id", f"{_new_id()}\n")
        first = self._write("first.sql", statements)
        done = self._run(self._first_command(root, first), self._environment(root))
        first.unlink()
        if done.returncode != 0:
            output = (done.stdout + done.stderr).replace(password, "…").strip()
            lines = tuple(output[-800:].splitlines())
            raise Misconfigured(f"no data folder for {self._name}:", lines=lines)
        (self._home / self.MADE).touch()

    def _new_child(self) -> Child:
        root = self._root()
        command = self._server_command(root)
        command += [f"--datadir={self.data}", f"--tmpdir={self._home}", f"--port={self.port}"]
        command += [f"--socket={self.socket}", f"--pid-file={self._home / 'pid'}"]
        command += [f"--bind-address={LOOPBACK}", f"--server-id={self.server_id}"]
        command += [f"--{key}={value}" for key, value in self._settings.items()]
        return Child(
            self._name,
            command,
            run_folder=self._directory,
            environment=self._environment(root),
            account=self._account,
            cwd=self._home,
        )

    def _answers(self) -> bool:
        try:
            # Another program that took the port may accept connections and never answer.
            self.connect(connect_timeout=2, read_timeout=2, write_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _environment(self, root: Path) -> dict[str, str]:
        # Two servers made concurrently would use files of the same name in /tmp.
        home = {"HOME": str(self._home), "TMPDIR": str(self._home)}
        home |= {"TZ": "UTC", "LC_ALL": "C.UTF-8"}
        libraries = self._libraries(root)
        if libraries:
            home["LD_LIBRARY_PATH"] = libraries
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **home}


def _new_id() -> int:
    return 1 + secrets.randbelow(2**31 - 2)


def libraries_below(root: Path) -> str:
    """Return the library folders of packages unpacked in ``root``, for LD_LIBRARY_PATH."""
    return ":".join(str(folder) for folder in sorted(root.glob("usr/lib/*-linux-gnu*")))
