"""Drivers of tables in S3, each a process with a JVM of its own, and a gate before their commits.

A *gate* has commits in hand at the proxy: the entry of a table's log that a driver puts is neither
at the server nor answered until the gate is opened. So two drivers stand at the same entry, or one
stands there while others commit, whatever the machine does meanwhile.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from tests.faults.camera import thread_states
from tests.faults.every_mode import EveryMode
from tests.faults.kills import config_of
from tests.faults.s3_faults import Request, S3Faults
from tests.fixtures.capture import poll
from tests.fixtures.settings import as_toml
from tideline.contract import layout
from tideline.contract.receipt import TableReceipt, decode_receipt
from tideline.store.objects import open_store

_REPOSITORY = Path(__file__).parents[2]
_PATIENCE_S = 600.0
_PUTS = ("create", "put")
_STANDS = "TtZX"
"""The states of threads that are stopped, or at their end."""
_PLAN = re.compile(r"^plan (\S+):", re.MULTILINE)


class Driver:
    """Runs ``line`` in a process group of its own while it is entered; its output is in ``log``."""

    def __init__(self, line: Sequence[str], log: Path) -> None:
        self._line = line
        self._log = log

    def __enter__(self) -> Self:
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._line,
                cwd=_REPOSITORY,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._input.close()
        if not self.ended:
            self.kill()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def output(self) -> str:
        return self._log.read_text()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def tell(self, word: str) -> None:
        """Write a line to its input."""
        self._input.write(f"{word}\n".encode())
        self._input.flush()

    def wait_lines(self, count: int) -> list[str]:
        """Its output, once it has so many lines."""

        def lines() -> list[str]:
            return self.output.splitlines()

        poll("its lines", lambda: self.ended or len(lines()) >= count, timeout_s=_PATIENCE_S)
        assert len(lines()) >= count, self.output
        return lines()

    def stop(self) -> None:
        """Stop every thread of the group (SIGSTOP); return once they stand."""
        group = self._process.pid
        os.killpg(group, signal.SIGSTOP)

        def stand() -> bool:
            return all(one in _STANDS for pid in _members(group) for one in thread_states(pid))

        poll("all of its threads stand", stand)
        assert len(list(_members(group))) >= 2, "the JVM is in another group"

    def go_on(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def receipt(self, tables: EveryMode) -> TableReceipt:
        """What its merge of one table came to, once it has ended well."""
        assert self._process.wait(_PATIENCE_S) == 0, self.output
        found = _PLAN.search(self.output)
        assert found is not None, self.output
        settings = tables.history.settings
        raw = open_store(settings.store).get(layout.receipt_key(settings.pipeline, found[1]))
        assert raw is not None, self.output
        (one,) = decode_receipt(raw).tables
        return one


class Gate:
    """Holds the first ``count`` commits to the table in the folder ``target``."""

    def __init__(self, target: str, count: int) -> None:
        self.held: list[Request] = []
        """In the order of their coming."""
        self._log = f"/{target}/_delta_log/"
        self._count = count
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._cut = False

    def watch(self, when: str, request: Request) -> None:
        """What `S3Faults.watched` calls."""
        if when != "before" or not self._is_commit(request):
            return
        with self._lock:
            if len(self.held) == self._count:
                return
            self.held.append(request)
        assert self._opened.wait(_PATIENCE_S)
        if self._cut:
            raise ConnectionError("its client died")

    def _is_commit(self, request: Request) -> bool:
        return request.kind in _PUTS and self._log in request.key and request.key.endswith(".json")

    def wait(self, *drivers: Driver) -> None:
        """Return once all are held; AssertionError where a driver ends before."""

        def full() -> bool:
            return len(self.held) == self._count

        def early() -> bool:
            return any(one.ended for one in drivers)

        poll("a commit is in hand", lambda: full() or early(), timeout_s=_PATIENCE_S)
        assert full(), [one.output for one in drivers]

    def open(self, *, cut: bool = False) -> None:
        """Pass on what is held; ``cut``: drop it instead. The first call counts."""
        if not self._opened.is_set():
            self._cut = cut
            self._opened.set()


@contextmanager
def gate(faults: S3Faults, target: str, count: int = 1) -> Iterator[Gate]:
    """A gate before the log of a table, which is open again when the context ends."""
    made = Gate(target, count)
    with faults.watched(made.watch):
        try:
            yield made
        finally:
            made.open()


def settings_file(tables: EveryMode, faults: S3Faults, jars: Sequence[Path] | None = None) -> Path:
    """A driver's settings, by which it reaches S3 through the proxy; ``jars`` in place of ours."""
    path = config_of(tables, endpoint=faults.endpoint)
    if jars is None:
        return path
    values = tomllib.loads(path.read_text())
    values["merge"]["jars"] = ",".join(str(jar) for jar in jars)
    other = path.with_name("other-jars.toml")
    other.write_text(as_toml(values))
    return other


def log_of(tables: EveryMode, name: str) -> dict[str, bytes]:
    """Every entry of a table's log, by its name."""
    folder = f"{tables.target(name)}/_delta_log"
    keys = [key for key in tables.files.keys(folder) if key.endswith(".json")]
    return {key.rpartition("/")[2]: tables.files.get(key) for key in keys}


def numbers_of(log: dict[str, bytes]) -> list[int]:
    """The manifest numbers that commits of merges have set, in the order of the commits."""
    lines = (line for name in sorted(log) for line in log[name].splitlines())
    actions = (msgspec.json.decode(line) for line in lines)
    return [one["txn"]["version"] for one in actions if "txn" in one]


def _members(group: int) -> Iterator[int]:
    """The processes of a group."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(words[2]) == group:
            yield int(path.parent.name)
