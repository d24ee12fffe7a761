"""A table into Parquet by watermarked chunks, next to one COPY of the whole table."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg2

from devtools.benchmarks import orders
from devtools.benchmarks.equality import assert_equal
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, CpuCost, rig, run_until_idle

NAME = "postgres_dump"
CHUNK_ROWS = 50_000


def run(rows: int) -> Iterator[Result]:
    """Dump ``rows`` rows of `orders` in chunks of 50,000."""
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, rows)
        server.cursor.execute("VACUUM ANALYZE orders")
        _copy(server)
        copy = _copy(server)
        settings = server.settings(initial="dump", chunk_rows=CHUNK_ROWS)
        cost = run_until_idle(settings, server, begin="between-chunks")
        assert_equal(server.cursor, settings=settings, changes=rows, captured=cost.rows)
        yield result(
            NAME,
            "orders",
            "rows per client CPU second",
            value=(rows / cost.cpu_s, "1/s"),
            baseline=("COPY of the table, dropped", rows / copy.cpu_s),
            goal="≥ 460,000 per second",
        )
        yield result(
            NAME,
            "orders",
            "rows per second (wall)",
            value=(rows / cost.wall_s, "1/s"),
            baseline=("COPY of the table, dropped", rows / copy.wall_s),
            goal="≥ 0.75 of COPY at 50,000-row chunks",
        )


class _Nothing:
    def write(self, data: bytes) -> int:
        return len(data)

    def read(self, size: int = -1) -> bytes:
        return b""


def _copy(server: CaptureRig) -> CpuCost:
    connection = psycopg2.connect(server.dsn)
    begun, cpu = time.perf_counter(), time.process_time()
    connection.cursor().copy_expert("COPY orders TO STDOUT (FORMAT csv)", _Nothing())
    cost = CpuCost(time.perf_counter() - begun, time.process_time() - cpu)
    connection.close()
    return cost
