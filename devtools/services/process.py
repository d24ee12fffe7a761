"""One program as a child in its own session and process group.

Invariant: only what this project started is ever signalled. Each child leaves a pid file in its
run folder; ``leftovers`` ends what an earlier run, killed without warning, left there.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools.services.process_table import (
    KILL_TIMEOUT_S,
    ProcessId,
    boot_id,
    descendants,
    end_processes,
    is_alive,
    session_members,
    start_ticks,
)
from tideline.contract.errors import Misconfigured, Unavailable

PID_SUFFIX = ".pid.json"
STOP_TIMEOUT_S = 20.0
_POLL_S = 0.01
_LOG_TAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Account:
    """An operating-system user that a child runs as."""

    name: str
    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """Return ``nobody`` when this process is root, for servers that refuse root; else None."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise Misconfigured(
            "PostgreSQL does not run as root, and there is no user `nobody`",
            hint="add the user, or run as another user than root",
        ) from None
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid)


class Child:
    """A program that runs until it is stopped; start it again after it ended.

    Output goes to ``{run_folder}/{name}.log`` (appended), the pid file is
    ``{run_folder}/{name}.pid.json`` while the child runs.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        run_folder: Path,
        environment: Mapping[str, str] | None = None,
        account: Account | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = run_folder / f"{name}.log"
        self._pid_file = run_folder / f"{name}{PID_SUFFIX}"
        self._environment = None if environment is None else dict(environment)
        self._account = account
        self._cwd = cwd
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running (or last) child's process id; Unavailable when never started."""
        return self._started().pid

    @property
    def started(self) -> bool:
        """Return whether it was ever started: only then is there anything to stop."""
        return self._popen is not None

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        """The exit code, None while it runs; negative: the signal that ended it."""
        return self._started().poll()

    def start(self) -> None:
        """Start it; Misconfigured when the program cannot be run at all."""
        if self.running:
            return
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._popen = self._spawn()
        except OSError as error:
            raise Misconfigured(
                f"{self.name} cannot be started: {error.strerror}, {self.command[0]}"
            ) from error
        self._write_pid_file(self._popen.pid)

    def _spawn(self) -> subprocess.Popen[bytes]:
        account = self._account
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self._cwd,
                start_new_session=True,
                user=None if account is None else account.uid,
                group=None if account is None else account.gid,
                extra_groups=None if account is None else [],
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the child itself (SIGSTOP, SIGCONT, SIGHUP …), if it still runs."""
        self._started().send_signal(number)

    def freeze(self) -> None:
        """Send SIGSTOP to the child itself. Returns once every thread of it has stopped, or it
        ended. SIGCONT lets it continue."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self._started().pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S, *, how: int = signal.SIGTERM) -> int:
        """Ask it to end, end it by force after ``timeout_s``; returns its exit code.

        Descendants that outlive it are ended as well. Safe to call twice.
        """
        return self._end(how, timeout_s)

    def kill(self) -> int:
        """Kill (SIGKILL) it and its descendants, as a crash would."""
        return self._end(signal.SIGKILL, KILL_TIMEOUT_S)

    def wait(self, timeout_s: float) -> int:
        """Return its exit code once it ended by itself; Unavailable after ``timeout_s``."""
        try:
            return self._started().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self.name} still runs after {timeout_s:g} s") from None

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float) -> None:
        """Poll ``ready``; Unavailable with the log's end when the child dies or time is up."""
        end = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise self.ended(self.returncode)
            if time.monotonic() > end:
                late = f"{self.name} not ready in {timeout_s:g} s:"
                raise Unavailable(late, lines=self._log_lines())
            time.sleep(_POLL_S)

    def ended(self, code: int | None) -> Unavailable:
        """Return the error for a child that ended wrongly: its log's end, line by line."""
        return Unavailable(f"{self.name} ended with {code}:", lines=self._log_lines())

    def _log_lines(self) -> tuple[str, ...]:
        return tuple(self.log_tail().splitlines())

    def log_tail(self) -> str:
        """Return the end of its log, for an error message."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()

    def _end(self, how: int, timeout_s: float) -> int:
        popen = self._started()
        # Collected before the leader ends: PostgreSQL's backends have separate sessions.
        family = descendants(popen.pid) | session_members(popen.pid)
        if popen.poll() is None:
            popen.send_signal(how)
        try:
            popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            popen.kill()
        family |= session_members(popen.pid)
        code = popen.wait(KILL_TIMEOUT_S)
        end_processes(family, grace_s=0.0 if how == signal.SIGKILL else 2.0)
        self._pid_file.unlink(missing_ok=True)
        return code

    def _started(self) -> subprocess.Popen[bytes]:
        if self._popen is None:
            raise Unavailable(f"{self.name} was not started")
        return self._popen

    def _write_pid_file(self, pid: int) -> None:
        record = {
            "name": self.name,
            "boot": boot_id(),
            "child": [pid, start_ticks(pid)],
            "owner": [os.getpid(), start_ticks(os.getpid())],
        }
        partial = self._pid_file.with_suffix(".partial")
        partial.write_text(json.dumps(record))
        partial.rename(self._pid_file)


def leftovers(run_folder: Path) -> list[str]:
    """End what an earlier run left behind; return the names of what was still running.

    Reads the pid files in ``run_folder`` and in its subfolders. Raises Misconfigured when the run
    that wrote them is still alive: then they are no leftovers.
    """
    ended = []
    for path in sorted([*run_folder.glob(f"*{PID_SUFFIX}"), *run_folder.glob(f"*/*{PID_SUFFIX}")]):
        name, child, owner = _read_pid_file(path)
        if owner is not None and is_alive(owner):
            raise Misconfigured(
                f"{run_folder} is in use by the process {owner.pid}",
                hint="stop that run first, or choose another run folder",
            )
        if child is not None and _end_family(child):
            ended.append(name)
        path.unlink(missing_ok=True)
    return ended


def _end_family(child: ProcessId) -> bool:
    if start_ticks(child.pid) not in (None, child.start_ticks):
        return False  # another program has the id now, and may have its session
    family = {
        member
        for member in descendants(child.pid) | session_members(child.pid)
        if member.start_ticks >= child.start_ticks
    }
    if is_alive(child):
        end_processes({child}, grace_s=STOP_TIMEOUT_S)
        family.add(child)
    return end_processes(family, grace_s=2.0) or child in family


def _read_pid_file(path: Path) -> tuple[str, ProcessId | None, ProcessId | None]:
    try:
        record = json.loads(path.read_text())
        name, boot = str(record["name"]), record["boot"]
        child, owner = ProcessId(*record["child"]), ProcessId(*record["owner"])
    except (ValueError, KeyError, TypeError):
        return path.name, None, None  # cut off while it was written: names no process
    if boot != boot_id():
        return name, None, None
    return name, child, owner
