"""Measures the time from a client's commit to its object, at 1,000 transactions per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg2
import pyarrow.parquet as pq

from devtools.benchmarks import orders
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.app import run_worker

NAME = "postgres_latency"
FLUSH_S = 0.1
RATE = 1_000
WRITERS = 2


def run(rows: int) -> Iterator[Result]:
    """Make ``rows`` / 50 single-row inserts at the given rate, flushed every 100 ms."""
    count = max(rows // 50, 1_000)
    with rig(synchronous_commit="on") as server:
        orders.create(server.cursor)
        settings = server.settings(flush_interval_s=FLUSH_S)
        durable: dict[int, float] = {}
        committed = _capture_while_writing(server, settings, count, durable)
        latencies = sorted(_latencies(settings, committed, durable))
        spent = max(committed.values()) - min(committed.values())
        for share in (50, 99):
            value = latencies[min(len(latencies) * share // 100, len(latencies) - 1)] * 1000
            yield result(
                NAME,
                f"{len(latencies) / spent:.0f} transactions/s",
                f"commit to object, p{share}",
                value=(value, "ms"),
                baseline=("flush interval", FLUSH_S * 1000),
                goal="p99 ≤ 250 ms now, 120 ms aimed at",
            )


def _capture_while_writing(
    server: CaptureRig, settings: Settings, count: int, durable: dict[int, float]
) -> dict[int, float]:
    """Return commit times by id; fill ``durable`` with each manifest's time in the store."""
    committed: dict[int, float] = {}
    numbers = iter(range(1, 1 << 40))
    chain = Chain(open_store(settings.store), settings.pipeline)

    def note(point: str) -> None:
        if point == "after-manifest":
            durable[base + next(numbers)] = time.monotonic()

    run_worker(settings, until_idle_s=0.5)
    tail = chain.tail()
    base = tail.manifest.manifest_number + 1 if tail else 0
    writers = [
        threading.Thread(target=_write, args=(server, count, n, committed)) for n in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    run_worker(settings, until_idle_s=1.0, on_point=note)
    for writer in writers:
        writer.join()
    return committed


def _write(server: CaptureRig, count: int, mine: int, committed: dict[int, float]) -> None:
    connection = psycopg2.connect(server.dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    begun = time.monotonic()
    for number in range(mine, count, WRITERS):
        ahead = begun + number / RATE - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        cursor.execute(
            "INSERT INTO orders VALUES (%s, 1, 1, 1, 1, 1, 'sku', NULL, NULL, true, now(), now())",
            (number,),
        )
        committed[number] = time.monotonic()
    connection.close()


def _latencies(
    settings: Settings, committed: dict[int, float], durable: dict[int, float]
) -> Iterator[float]:
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    root = settings.store.url.removeprefix("file://")
    last = tail.manifest.manifest_number if tail else 0
    for entry in chain.entries(1, last):
        at = durable.get(entry.manifest.manifest_number)
        for part in entry.manifest.parts if at is not None else ():
            for number in pq.read_table(f"{root}/{part.key}", columns=["id"])["id"].to_pylist():
                if at is not None:
                    yield at - committed[number]
