"""PostgreSQL's log into Parquet, next to a null drain of the same slot and the walsender's CPU."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg2
from psycopg2.extras import LogicalReplicationConnection

from devtools.benchmarks import orders
from devtools.benchmarks.equality import assert_equal
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, CpuCost, rig, run_until_idle, watch_sender
from tideline.settings import Settings

NAME = "postgres_capture"
FLUSH_S = 0.25
"""Short, so that the wall time excludes the last segment's wait for its flush."""
_SLOT = "null_drain"


def run(rows: int) -> Iterator[Result]:
    """Measure W1: ``rows`` rows in 1,000-row transactions; W2: a fifth as many updates."""
    with rig() as server:
        orders.create(server.cursor)
        settings = server.settings(flush_interval_s=FLUSH_S)
        run_until_idle(settings, server)
        orders.insert_in_bulk(server.cursor, rows)
        yield from _workload(server, settings, "W1", rows, 7.0)
        changes = rows // 5
        orders.update_one_by_one(server.cursor, rows, changes)
        yield from _workload(server, settings, "W2", changes, 10.0)


def _workload(
    server: CaptureRig, settings: Settings, workload: str, changes: int, goal_us: float
) -> Iterator[Result]:
    # The first one reads the log from disk, later ones from memory.
    null = min(_drain(server), _drain(server), key=lambda cost: cost.wall_s)
    cost = run_until_idle(settings, server)
    assert_equal(server.cursor, settings=settings, changes=changes, captured=cost.rows)
    value = cost.cpu_s / changes * 1e6
    yield result(
        NAME,
        workload,
        "client CPU per change",
        value=(value, "µs"),
        baseline=("null drain of the same slot", null.cpu_s / changes * 1e6),
        goal=f"≤ {goal_us:g} µs",
    )
    yield result(
        NAME,
        workload,
        "client CPU per change",
        value=(value, "µs"),
        baseline=("walsender's CPU", cost.sender_cpu_s / changes * 1e6),
        goal="≤ 1 of the walsender's",
    )
    yield result(
        NAME,
        workload,
        "changes per second (wall)",
        value=(changes / cost.wall_s, "1/s"),
        baseline=("null drain of the same slot", changes / null.wall_s),
        goal="≥ 0.8 of the drain",
    )


def _drain(server: CaptureRig) -> CpuCost:
    """Read the whole log that the pipeline's slot would send, and drop it."""
    cursor = server.cursor
    cursor.execute("SELECT pg_copy_logical_replication_slot('tideline_shop', %s, false)", (_SLOT,))
    end = f"end of the null drain {time.time_ns()}"
    cursor.execute("SELECT pg_logical_emit_message(true, 'bench', %s)", (end,))
    connection = psycopg2.connect(
        server.dsn,
        options="-c wal_sender_timeout=0",
        connection_factory=LogicalReplicationConnection,
    )
    stream = connection.cursor()
    with watch_sender(server) as sender:
        begun, cpu = time.perf_counter(), time.process_time()
        options = {"proto_version": "1", "publication_names": "tideline_shop", "messages": "true"}
        stream.start_replication(slot_name=_SLOT, decode=False, options=options)
        while True:
            message = stream.read_message()
            if message is None:
                time.sleep(0.002)
            elif message.payload.endswith(end.encode()):
                break
        cost = CpuCost(time.perf_counter() - begun, time.process_time() - cpu)
    cost.sender_cpu_s = sender.cpu_s
    connection.close()
    _drop(server)
    return cost


def _drop(server: CaptureRig) -> None:
    for _ in range(100):
        server.cursor.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE slot_name = %s AND NOT active",
            (_SLOT,),
        )
        server.cursor.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (_SLOT,))
        if server.cursor.fetchone() is None:
            return
        time.sleep(0.1)
