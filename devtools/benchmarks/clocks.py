"""Measures the cost of work: CPU of this process and its Java, and wall time."""

from __future__ import annotations

import time

import psutil


def clocks() -> tuple[float, float]:
    """Return the CPU seconds used so far, and the wall clock."""
    used = time.process_time()
    for child in psutil.Process().children(recursive=True):
        if child.name() == "java":
            times = child.cpu_times()
            used += times.user + times.system
    return used, time.perf_counter()


def since(begun: tuple[float, float]) -> tuple[float, float]:
    """Return the CPU and wall seconds since ``begun``."""
    cpu, wall = clocks()
    return cpu - begun[0], wall - begun[1]
