"""The binlog into Parquet, next to mysql-replication on the same log, and a null drain of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from devtools.benchmarks.equality import MYSQL_CLOCK, assert_equal
from devtools.benchmarks.mysql_rig import SERVERS, MysqlRig, mysql_rig
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CpuCost, run_until_idle
from tideline.settings import Settings
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.binlog import intact
from tideline_capture.sources.mysql.binlog.checksums import first_damaged
from tideline_capture.sources.mysql.binlog.framing import Bytes

NAME = "mysql_capture"
FLUSH_S = 0.25
_LIBRARY_SHARE = 10
"""The library decodes a tenth of the log: all of it would take it minutes."""
_EVENTS = [WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]


def run(rows: int) -> Iterator[Result]:
    """Measure bulk: ``rows`` inserts in 1,000-row transactions; single: a fifth as many updates,
    each a transaction. On MariaDB and on MySQL."""
    for name in SERVERS:
        with mysql_rig(name) as server:
            server.create()
            settings = server.settings(flush_interval_s=FLUSH_S)
            run_until_idle(settings)
            begin = server.position()
            server.insert_in_bulk(rows)
            yield from _workload(server, settings, f"{name} bulk", rows, begin, (12, 30))
            changes = rows // 5
            begin = server.position()
            server.update_one_by_one(rows, changes)
            yield from _workload(server, settings, f"{name} single", changes, begin, (30, 60))


def _workload(
    server: MysqlRig,
    settings: Settings,
    workload: str,
    changes: int,
    begin: tuple[str, int],
    floor_and_goal: tuple[int, int],
) -> Iterator[Result]:
    null = min(_drain(server, begin), _drain(server, begin), key=lambda cost: cost.wall_s)
    with _timed_checks() as checks:
        cost = run_until_idle(settings)
    assert_equal(
        server.cursor,
        settings=settings,
        changes=changes,
        captured=cost.rows,
        clock=MYSQL_CLOCK,
    )
    library = _library(server, begin, changes // _LIBRARY_SHARE)
    floor, goal = floor_and_goal
    value = changes / cost.cpu_s
    yield result(
        NAME,
        workload,
        "changes per client CPU second",
        value=(value, "1/s"),
        baseline=("mysql-replication on the same log", library.rows / library.cpu_s),
        goal=f"≥ {floor} × now, {goal} × wanted",
    )
    yield result(
        NAME,
        workload,
        "client CPU per change",
        value=(cost.cpu_s / changes * 1e6, "µs"),
        baseline=("null drain of the same bytes", null.cpu_s / changes * 1e6),
        goal="≤ 8 of the drain in bulk, ≤ 10 single",
    )
    yield result(
        NAME,
        workload,
        "client CPU per change for checksums",
        value=(checks.cpu_s / changes * 1e6, "µs"),
        baseline=(
            "client CPU per change without them",
            (cost.cpu_s - checks.cpu_s) / changes * 1e6,
        ),
        goal="≤ 0.03",
    )
    yield result(
        NAME,
        workload,
        "changes per second (wall)",
        value=(changes / cost.wall_s, "1/s"),
        baseline=("null drain of the same bytes", changes / null.wall_s),
        goal="as near the drain as can be",
    )


@contextmanager
def _timed_checks() -> Iterator[CpuCost]:
    """Measure the CPU of checking event checksums, by the checking thread's clock."""
    cost, compare = CpuCost(), first_damaged

    def timed(data: Bytes, starts: Int64Array, stops: Int64Array) -> int | None:
        begun = time.thread_time()
        damaged = compare(data, starts, stops)
        cost.cpu_s += time.thread_time() - begun
        return damaged

    with mock.patch.object(intact, "first_damaged", timed):
        yield cost


def _reader(server: MysqlRig, begin: tuple[str, int], **options: Any) -> BinLogStreamReader:
    login = {
        "host": "127.0.0.1",
        "port": server.server.port,
        "user": "root",
        "passwd": server.server.password,
        "ssl_disabled": True,
    }
    return BinLogStreamReader(
        connection_settings=login,
        server_id=4_000_000_001,
        log_file=begin[0],
        log_pos=begin[1],
        resume_stream=True,
        enable_logging=False,
        **options,
    )


def _drain(server: MysqlRig, begin: tuple[str, int]) -> CpuCost:
    """Read the whole log that the server sends, and drop it."""
    reader = _reader(server, begin, blocking=False)
    begun, cpu = time.perf_counter(), time.process_time()
    reader._BinLogStreamReader__connect_to_stream()
    sock = reader._stream_connection._sock
    buffer, tail = bytearray(1 << 20), b""
    while count := sock.recv_into(buffer):
        tail = (tail + bytes(buffer[max(0, count - 9) : count]))[-9:]
        if len(tail) == 9 and tail[:3] == b"\x05\0\0" and tail[4] == 0xFE:
            break
    cost = CpuCost(time.perf_counter() - begun, time.process_time() - cpu)
    reader.close()
    return cost


def _library(server: MysqlRig, begin: tuple[str, int], changes: int) -> CpuCost:
    """Read the first ``changes`` changes as mysql-replication's rows."""
    reader = _reader(server, begin, blocking=False, only_events=_EVENTS)
    begun, cpu, count = time.perf_counter(), time.process_time(), 0
    for event in reader:
        if event.table == "orders":
            count += len(event.rows)
        if count >= changes:
            break
    cost = CpuCost(time.perf_counter() - begun, time.process_time() - cpu, rows=count)
    reader.close()
    return cost
