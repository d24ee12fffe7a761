"""MariaDB, from the machine when it has one, else from Debian's packages unpacked in the cache."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from devtools.services.binlog_server import SETTINGS, BinlogServer, libraries_below
from devtools.services.debian import packages_folder
from tideline.cache import cache_folder

PACKAGES = ("mariadb-server-core", "mariadb-client-core", "libaio1", "liburing2")
VERSION_MIN = (10, 6)
_INSTALL = "mariadb-install-db"
_FOLDER = "mariadb"


class MariadbServer(BinlogServer):
    """One MariaDB (10.6 or newer)."""

    SCHEME = "mariadb"
    NAME = "mariadb"
    SETTINGS: ClassVar[Mapping[str, str]] = {
        **SETTINGS,
        "gtid_strict_mode": "ON",
        "log_slave_updates": "ON",
    }
    CLEARED = (
        "DELETE FROM mysql.global_priv WHERE Host <> 'localhost' "
        "OR User NOT IN ('root', 'mariadb.sys');\n"
    )

    def _programs(self) -> Path:
        return mariadb_root()

    def _server_command(self, root: Path) -> list[str]:
        server = root / "usr/sbin/mariadbd"
        installed = shutil.which("mariadbd") if root == Path("/") else None
        return [installed or str(server), "--no-defaults", f"--basedir={root / 'usr'}"]

    def _first_command(self, root: Path, statements: Path) -> list[str]:
        installed = shutil.which(_INSTALL) if root == Path("/") else None
        return [
            installed or str(root / "usr/bin" / _INSTALL),
            "--no-defaults",
            f"--basedir={root / 'usr'}",
            f"--datadir={self.data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            f"--extra-file={statements}",
        ]

    def _libraries(self, root: Path) -> str:
        return "" if root == Path("/") else libraries_below(root)


def mariadb_root() -> Path:
    """Return the root of an installed or unpacked MariaDB; Unavailable when neither can be."""
    return Path("/") if _is_installed() else packages_folder(_FOLDER, PACKAGES)


def mariadb_is_there() -> bool:
    """Return whether nothing has to be fetched for it."""
    return _is_installed() or (cache_folder() / _FOLDER).is_dir()


def _is_installed() -> bool:
    server = shutil.which("mariadbd")
    return server is not None and bool(shutil.which(_INSTALL)) and _version(server) >= VERSION_MIN


def _version(server: str) -> tuple[int, int]:
    done = subprocess.run(
        [server, "--no-defaults", "--version"], capture_output=True, text=True, check=False
    )
    match = re.search(r"Ver (\d+)\.(\d+)", done.stdout)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)
