"""Linux's process table: finds living processes and their descendants, and ends exactly those.

Invariant: a process is known by its id *and* its start time in clock ticks since boot. Signals go
through a pidfd that is opened before the two are compared, so a recycled id is never hit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tideline.contract.errors import Unavailable

KILL_TIMEOUT_S = 60.0
_POLL_S = 0.01

# Fields of /proc/PID/stat from the state on, see proc(5).
_STATE, _PARENT, _SESSION, _START = 0, 1, 3, 19


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start_ticks: int


def end_processes(processes: Iterable[ProcessId], *, grace_s: float) -> bool:
    """Send SIGTERM (when there is grace), then SIGKILL; return whether any was still alive.

    Returns when all are gone; Unavailable when SIGKILL does not end one.
    """
    waiting = {process for process in processes if is_alive(process)}
    found = bool(waiting)
    stages = ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_TIMEOUT_S))
    for number, limit_s in stages[0 if grace_s else 1 :]:
        for process in waiting:
            _send(process, number)
        end = time.monotonic() + limit_s
        while waiting and time.monotonic() < end:
            time.sleep(_POLL_S)
            waiting = {process for process in waiting if is_alive(process)}
    if waiting:
        raise Unavailable(f"processes outlive SIGKILL: {sorted(p.pid for p in waiting)}")
    return found


def _send(process: ProcessId, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(process):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def is_alive(process: ProcessId) -> bool:
    """Return whether this very process still runs; a zombie does not."""
    fields = _stat(process.pid)
    return (
        fields is not None and fields[_STATE] != "Z" and int(fields[_START]) == process.start_ticks
    )


def start_ticks(pid: int) -> int | None:
    """Return the start of ``pid`` in clock ticks since boot; None without such a process."""
    fields = _stat(pid)
    return None if fields is None else int(fields[_START])


def session_members(session: int) -> set[ProcessId]:
    """Return the living processes of the session that ``session`` leads or led, except itself."""
    return {
        ProcessId(pid, int(fields[_START]))
        for pid, fields in _all_stats().items()
        if int(fields[_SESSION]) == session and pid != session and fields[_STATE] != "Z"
    }


def descendants(pid: int) -> set[ProcessId]:
    """Return the living descendants of ``pid``, through parents that still live."""
    stats = _all_stats()
    children: dict[int, list[int]] = {}
    for child, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(child)
    found: set[ProcessId] = set()
    pending = list(children.get(pid, ()))
    while pending:
        child = pending.pop()
        found.add(ProcessId(child, int(stats[child][_START])))
        pending += children.get(child, ())
    return found


def _all_stats() -> dict[int, list[str]]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    return {pid: fields for pid in pids if (fields := _stat(pid)) is not None}


def _stat(pid: int) -> list[str] | None:
    # The command's name before the state may hold blanks and parentheses: cut at the last one.
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def boot_id() -> str:
    """Return the boot's id; start times of different boots cannot be compared."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
