"""Measures the worker's memory for one huge transaction of MariaDB's log into Parquet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from devtools.benchmarks.mysql_rig import mysql_rig
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import run_until_idle

NAME = "mysql_memory"
ROW_BYTES = 4096
_HEX_DIGITS = 40
MiB = 1024 * 1024


def run(rows: int) -> Iterator[Result]:
    """Write ``rows`` rows of 4 KiB in one transaction: 2 GB with the default of 500,000."""
    with mysql_rig("mariadb") as server:
        server.create()
        cursor = server.cursor
        cursor.execute("CREATE TABLE big (id INT PRIMARY KEY, v TEXT CHARACTER SET ascii)")
        settings = server.settings(tables=["shop.big"])
        run_until_idle(settings)
        filler = f"REPEAT(SHA1(a.n * 1000 + b.n), {ROW_BYTES // _HEX_DIGITS})"
        numbers = f"numbers a, numbers b WHERE a.n * 1000 + b.n < {rows:d}"
        cursor.execute(f"INSERT INTO big SELECT a.n * 1000 + b.n, {filler} FROM {numbers}")  # noqa: S608
        file, offset = server.position()
        with _watched() as memory:
            cost = run_until_idle(settings)
        if cost.rows != rows:
            raise RuntimeError(f"{rows} rows were written, {cost.rows} captured")
        yield result(
            NAME,
            f"one transaction, the log ends at {file}:{offset}",
            "growth of the process while it is read",
            value=((memory.most - memory.before) / MiB, "MiB"),
            baseline=("bytes of the transaction's rows", rows * ROW_BYTES / MiB),
            goal="flat: bounded by the limits of buffers, whatever the transaction's size",
        )


class _Memory:
    def __init__(self) -> None:
        self.before = self.most = psutil.Process().memory_info().rss


@contextmanager
def _watched() -> Iterator[_Memory]:
    memory, stop = _Memory(), threading.Event()

    def watch() -> None:
        while not stop.wait(0.05):
            memory.most = max(memory.most, psutil.Process().memory_info().rss)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield memory
    stop.set()
    thread.join()
