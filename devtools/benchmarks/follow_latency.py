# ruff: noqa: S608  statements are made of numbers and names of ours
"""Measures the time from a client's commit to its row in the warehouse, with a merger, at 1,000
transactions per second on nine tables."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg2
import pyarrow.parquet as pq

from devtools.benchmarks import orders
from devtools.benchmarks.follow_rig import merger_status, running, settings_file, until
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig
from tideline.planner import applied_state
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store

NAME = "follow_latency"
FLUSH_S = 0.5
RATE = 1_000
TABLES = 9
WRITERS = 3
WARM_UP_S = 60.0
"""Not counted: a session's first merges are slow."""
GOAL_S = 8.0


def run(rows: int) -> Iterator[Result]:
    """Make inserts at the given rate for ``rows`` / 2,500 seconds after the warm-up: 200 s with the
    default 500,000."""
    seconds = WARM_UP_S + rows / 2_500
    with rig(synchronous_commit="on") as server:
        for number in range(TABLES):
            orders.create(server.cursor, f"orders_{number}")
            orders.fill(server.cursor, 1_000, f"orders_{number}")
        settings = server.settings(initial="dump", flush_interval_s=FLUSH_S)
        config = settings_file(server, settings)
        with running("capture", config), running("merge", config, "--follow"):
            until("all tables are built", lambda: _merged(settings))
            committed = _written(server, seconds)
            until("all is merged", lambda: _merged(settings))
            status = merger_status(settings)
        yield from _lines(sorted(_latencies(settings, committed)), 0 if status is None else
                          status.memory_bytes)  # fmt: skip


def _merged(settings: Settings) -> bool:
    tables = applied_state(settings).tables
    return len(tables) == TABLES and all(one.up_to_date for one in tables.values())


def _written(server: CaptureRig, seconds: float) -> dict[tuple[str, int], float]:
    """Write for so long; return the commit times (Unix, s) by table and id."""
    committed: dict[tuple[str, int], float] = {}
    threads = [
        threading.Thread(target=_write, args=(server, seconds, n, committed))
        for n in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return committed


def _write(
    server: CaptureRig, seconds: float, mine: int, committed: dict[tuple[str, int], float]
) -> None:
    connection = psycopg2.connect(server.dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    begun = time.monotonic()
    for number in range(mine, round(seconds * RATE), WRITERS):
        ahead = begun + number / RATE - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        table, key = f"public.orders_{number % TABLES}", 1_000_000 + number
        cursor.execute(
            f"INSERT INTO {table} VALUES"
            " (%s, 1, 1, 1, 1, 1, 'sku', NULL, NULL, true, now(), now())",
            (key,),
        )
        if number > WARM_UP_S * RATE:
            committed[table, key] = time.time()
    connection.close()


def _latencies(settings: Settings, committed: dict[tuple[str, int], float]) -> Iterator[float]:
    """Yield the seconds from each commit to that of the target's version that has its manifest."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    root = settings.store.url.removeprefix("file://")
    commits = {f"public.orders_{n}": _commits(settings, f"orders_{n}") for n in range(TABLES)}
    for entry in chain.entries(1, tail.manifest.manifest_number if tail else 0):
        for part in entry.manifest.parts:
            numbers, times = commits[part.table]
            at = bisect_left(numbers, entry.manifest.manifest_number)
            for key in pq.read_table(f"{root}/{part.key}", columns=["id"])["id"].to_pylist():
                if (begun := committed.get((part.table, key))) is not None:
                    yield times[at] - begun


def _commits(settings: Settings, table: str) -> tuple[list[int], list[float]]:
    """Return the applied manifest numbers, ascending, and the times of their commits."""
    folder = Path(settings.warehouse.url.removeprefix("file://"), "public", table, "_delta_log")
    numbers, times = [], []
    for path in sorted(folder.glob("*.json")):
        actions = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
        number = max((a["txn"]["version"] for a in actions if "txn" in a), default=None)
        if number is not None:
            numbers.append(number)
            times.append(path.stat().st_mtime)
    return numbers, times


def _lines(latencies: list[float], memory_bytes: int) -> Iterator[Result]:
    workload = f"{RATE} transactions/s on {TABLES} tables, {len(latencies)} rows"
    for share in (50, 95, 99):
        value = latencies[min(len(latencies) * share // 100, len(latencies) - 1)]
        yield result(
            NAME,
            workload,
            f"commit to merged, p{share}",
            value=(value, "s"),
            baseline=("flush interval", FLUSH_S),
            goal=f"p95 ≤ {GOAL_S:g} s",
        )
    yield result(
        NAME,
        workload,
        "resident memory of the session",
        value=(memory_bytes / 2**20, "MiB"),
        baseline=("heap", 2048),
        goal="-",
    )
