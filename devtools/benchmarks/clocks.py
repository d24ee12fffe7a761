"""What a stretch of work took: CPU of this process and its Java, and the wall."""

from __future__ import annotations

import time

import psutil


def clocks() -> tuple[float, float]:
    """CPU seconds used so far, and the wall."""
    used = time.process_time()
    for child in psutil.Process().children(recursive=True):
        if child.name() == "java":
            times = child.cpu_times()
            used += times.user + times.system
    return used, time.perf_counter()


def since(begun: tuple[float, float]) -> tuple[float, float]:
    """CPU and wall seconds since ``begun``."""
    cpu, wall = clocks()
    return cpu - begun[0], wall - begun[1]
