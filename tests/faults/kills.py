"""Real deaths: a command is killed (SIGKILL, its whole process group) while it writes.

In files, a moment drawn after its first write; in S3 and BigQuery, right before or after a chosen
request, which a proxy has in hand by then.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from pydantic import SecretStr

from tests.faults.camera import Watched
from tests.faults.every_mode import EveryMode
from tests.faults.s3_faults import Kind, Request
from tests.fixtures.parts import History, table_format
from tests.fixtures.settings import as_toml
from tideline.settings import Warehouse

_REPOSITORY = Path(__file__).parents[2]
_PROGRAM = "from tideline_console.app import app; app()"
_KILLED_WITHIN_S = 4.0
_PATIENCE_S = 240.0


@dataclass(frozen=True, slots=True)
class At:
    """The ``nth`` request of ``kind`` whose key holds ``key``; before its effect, or after it and
    before its answer."""

    when: Literal["before", "after"]
    kind: Kind
    key: str
    nth: int = 1

    def meets(self, request: Request) -> bool:
        """Whether it is about such a request."""
        return request.kind == self.kind and self.key in request.key

    def __str__(self) -> str:
        return f"{self.when} {self.kind} {self.nth} {self.key}"


@dataclass(frozen=True, slots=True)
class AtJob:
    """The ``nth`` request for a job of BigQuery's that changes a target or its log; before its
    effect, or after it and before its answer."""

    when: Literal["before", "after"]
    nth: int = 1

    def meets(self, request: Any) -> bool:
        """Whether it is about such a request, a `Call` of the stand-in's."""
        return str(request.job_id).startswith("tideline-")

    def __str__(self) -> str:
        return f"{self.when} job {self.nth}"


@dataclass(frozen=True, slots=True)
class AtWrite:
    """The ``nth`` request for a job, a table or a dataset of BigQuery's, of ``jobs`` alone; before
    its effect, or after it and before its answer."""

    when: Literal["before", "after"]
    nth: int
    jobs: bool = False

    def meets(self, request: Any) -> bool:
        """Whether it is such a request, a `Call` of the stand-in's."""
        return not self.jobs or request.job_id is not None

    def __str__(self) -> str:
        return f"{self.when} {'job' if self.jobs else 'request'} {self.nth}"


def entry_or_deletion(request: Request) -> bool:
    """Whether it creates an entry of a table's log, or removes objects."""
    return request.kind == "delete" or (request.kind == "create" and "/_delta_log/" in request.key)


def command(words: Sequence[str], config: Path) -> list[str]:
    """A command of `tideline`."""
    return [sys.executable, "-c", _PROGRAM, *words, "--config", str(config)]


def kill_soon(words: Sequence[str], tables: EveryMode, config: Path, random_: Random) -> bool:
    """Run a command to a death soon after its first write; False if it was done before, and
    well."""
    before = tables.files.keys("warehouse")
    printed = config.with_name("printed.txt")
    process = _started(command(words, config), printed)
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while process.poll() is None and tables.files.keys("warehouse") == before:
            assert time.monotonic() < deadline, f"{words} writes nothing"
            time.sleep(0.02)
        time.sleep(random_.uniform(0, _KILLED_WITHIN_S))
    finally:  # Also when it is us who are interrupted: it would go on alone.
        ended = process.poll() is not None
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not ended or process.returncode == 0, f"{words} failed: {printed.read_text()}"
    return not ended


def kill_at(
    line: Sequence[str],
    at: At | AtJob | AtWrite,
    faults: Watched,
    environment: dict[str, str] | None = None,
) -> bool:
    """Run a command line, whose requests go through ``faults``, to its death at a request; False if
    it was done before, and well."""
    met = itertools.count(1)

    def watch(when: str, request: Any) -> None:
        if when == at.when and at.meets(request) and next(met) == at.nth:
            os.killpg(process.pid, signal.SIGKILL)
            raise ConnectionError(f"the client died {at}")

    with tempfile.NamedTemporaryFile() as file, faults.watched(watch):
        printed = Path(file.name)
        process = _started(line, printed, environment)
        try:
            process.wait(_PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        output = printed.read_text()
    assert process.returncode in (0, -signal.SIGKILL), f"{line} failed: {output}"
    return process.returncode == -signal.SIGKILL


def config_of(tables: EveryMode, **access: str) -> Path:
    """The settings file of a command; ``access`` is laid over that of the place."""
    path = tables.root.parent / "tideline.toml"
    return config_for(path, tables.history, tables.place, tables.settings, **access)


def config_for(
    path: Path, history: History, place: Warehouse | None, tables: Mapping[str, Any], **access: str
) -> Path:
    """Write the settings file of a command for the chain of ``history``, whose tables are in
    ``place``; ``tables`` are its sections of tables. Return ``path``."""
    settings = history.settings
    known: dict[str, Any] = {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in settings.store.access().items()
        if value is not None
    }
    values = {
        "pipeline": settings.pipeline,
        "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
        "store": {"url": settings.store.url, **known, **access},
        "warehouse": {"url": settings.warehouse.url, **table_format(place)},
        "merge": {"driver_memory": "1g"},
        "maintain": {"small_files_min": 2},
        "tables": tables,
    }
    path.write_text(as_toml(values))
    return path


def _started(
    line: Sequence[str], printed: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with printed.open("wb") as file:
        return subprocess.Popen(
            line,
            cwd=_REPOSITORY,
            env=environment,
            start_new_session=True,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
