"""An emulator of BigQuery, ``bqemulator``: its REST API over DuckDB, for tests.

It has an environment of its own in the cache, with what ``requirements/bigquery.txt`` locks: its
DuckDB is a certain one, and its other packages are older than ours. It is wrong in places that
tests of a warehouse rest on; they use it through ``devtools/bigquery/front.py`` alone.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from devtools.services.ports import LOOPBACK, free_port
from devtools.services.process import Child
from devtools.services.server import LoopbackServer
from tideline.cache import cache_folder, fetch, rename_into_place

ROOT = Path(__file__).resolve().parents[2]
_NAME = "requirements/bigquery"
_EXTENSION = "import duckdb_extensions; duckdb_extensions.import_extension('spatial')"
"""DuckDB would download it, when the emulator starts, from a site of its own."""


class BigQueryServer(LoopbackServer):
    """One emulator. Its tables are gone when it stops; it has no login."""

    def __init__(self, directory: Path, *, port: int | None = None, name: str = "bigquery") -> None:
        super().__init__(directory, port=port, name=name)

    @property
    def endpoint(self) -> str:
        """Return the address of its REST API."""
        return f"http://{LOOPBACK}:{self.port}"

    def _new_child(self) -> Child:
        self._directory.mkdir(parents=True, exist_ok=True)
        home = emulator_root()
        return Child(
            self._name,
            [
                *(str(home / "bin" / "python"), "-m", "bqemulator", "start", "--ephemeral"),
                *("--rest-host", LOOPBACK, "--rest-port", str(self.port)),
                *("--grpc-host", LOOPBACK, "--grpc-port", str(free_port())),
            ],
            run_folder=self._directory,
            environment={
                "PATH": "/usr/bin:/bin",
                "HOME": str(home),  # DuckDB's extensions are there.
                "BQEMU_ENABLE_FORMAT_EXTENSIONS": "false",  # Avro's would be downloaded.
                "BQEMU_METRICS_ENABLED": "false",
                "BQEMU_UPLOAD_STAGING_DIR": str(self._directory.absolute() / "uploads"),
            },
            cwd=self._directory,
        )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def emulator_is_there() -> bool:
    """Return whether the emulator's environment was built."""
    return _folder().is_dir()


def emulator_root() -> Path:
    """Return the emulator's environment, built where it is missing; Unavailable when its packages
    cannot be fetched."""
    target = _folder()
    if target.is_dir():
        return target
    partial = Path(tempfile.mkdtemp(prefix="bigquery.", dir=cache_folder()))
    try:
        lines = (ROOT / f"{_NAME}.in").read_text().splitlines()
        packages = [line for line in lines if not line.startswith("#")]
        lock = {"SETUP_LOCK": f"{_NAME}.txt", "PYTHON": sys.executable}
        setup = [str(ROOT / "scripts" / "setup"), str(partial), *packages]
        fetch("BigQuery's emulator", setup, ROOT, lock)
        python = str(partial / "bin" / "python")
        fetch("DuckDB's extension", [python, "-c", _EXTENSION], ROOT, {"HOME": str(partial)})
        rename_into_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _folder() -> Path:
    """Return the place of the environment; another lock has another one."""
    lock = hashlib.sha256((ROOT / f"{_NAME}.txt").read_bytes()).hexdigest()
    return cache_folder() / f"bigquery-{lock[:12]}"
