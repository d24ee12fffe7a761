"""Measures the cost of work: CPU of this process and its Java, of others, and wall time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil


def clocks() -> tuple[float, float]:
    """Return the CPU seconds used so far, and the wall clock."""
    return time.process_time() + java_s(), time.perf_counter()


def since(begun: tuple[float, float]) -> tuple[float, float]:
    """Return the CPU and wall seconds since ``begun``."""
    cpu, wall = clocks()
    return cpu - begun[0], wall - begun[1]


def java_s() -> float:
    """Return the CPU seconds so far of the Java processes below this one."""
    below = psutil.Process().children(recursive=True)
    return cpu_s(child for child in below if child.name() == "java")


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Return the CPU seconds so far of ``processes``; one that has ended counts as none."""
    found = 0.0
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            found += times.user + times.system
    return found
