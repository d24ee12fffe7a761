"""A table into Parquet by watermarked chunks, next to PyMySQL, mysqlclient and one SELECT."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pymysql.cursors

from devtools.benchmarks.equality import MYSQL_CLOCK, assert_equal
from devtools.benchmarks.mysql_rig import SERVERS, MysqlRig, mysql_rig
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CpuCost, run_until_idle
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_capture.app import run_worker
from tideline_capture.sources.mysql.snapshot.row_packets import read_rows

NAME = "mysql_dump"
CHUNK_ROWS = 50_000
_LIBRARY_SHARE = 5
"""The libraries read a fifth of the table."""
_QUERY = "SELECT * FROM orders"


def run(rows: int) -> Iterator[Result]:
    """Dump ``rows`` rows of ``orders`` in chunks of 50,000, on MariaDB and on MySQL; the wall is
    taken while another session writes to the table."""
    for name in SERVERS:
        with mysql_rig(name) as server:
            server.create()
            server.insert_in_bulk(rows)
            yield from _quiet(server, rows)
            yield from _under_writes(server, rows)


def _quiet(server: MysqlRig, rows: int) -> Iterator[Result]:
    settings = server.settings(initial="dump", chunk_rows=CHUNK_ROWS)
    cost = run_until_idle(settings, begin="between-chunks")
    assert_equal(
        server.cursor, settings=settings, changes=rows, captured=cost.rows, clock=MYSQL_CLOCK
    )
    yield _against(server, cost, "PyMySQL's rows into Parquet", _pymysql(server, rows), "≥ 5 ×")
    if find_spec("MySQLdb") is not None:
        yield _against(
            server, cost, "mysqlclient's rows into Parquet", _mysqlclient(server, rows), ""
        )


def _against(server: MysqlRig, cost: CpuCost, what: str, other: CpuCost, goal: str) -> Result:
    return result(
        NAME,
        server.name,
        "rows per client CPU second",
        value=(cost.rows / cost.cpu_s, "1/s"),
        baseline=(what, other.rows / other.cpu_s),
        goal=goal,
    )


def _under_writes(server: MysqlRig, rows: int) -> Iterator[Result]:
    settings = server.settings(initial="dump", chunk_rows=CHUNK_ROWS, pipeline="written")
    with _writing(server, settings):
        select = min((_select(server, rows) for _ in range(2)), key=lambda cost: cost.wall_s)
        begun: list[float] = []

        def note(point: str) -> None:
            if point == "between-chunks" and not begun:
                begun.append(time.time())

        run_worker(settings, until_idle_s=0.5, on_point=note)
    wall_s = _ended_at(settings) - begun[0]
    yield result(
        NAME,
        f"{server.name}, while another session writes",
        "rows per second (wall)",
        value=(rows / wall_s, "1/s"),
        baseline=("one streaming SELECT of the table, dropped", rows / select.wall_s),
        goal="≥ 0.8 at 50,000-row chunks",
    )


def _ended_at(settings: Settings) -> float:
    """Return when the manifest that ends the dump was made; writes continue after it."""
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    for entry in chain.entries(1, tail.manifest.manifest_number if tail else 0):
        if entry.manifest.finished and entry.manifest.written_at_us:
            return entry.manifest.written_at_us / 1e6
    raise RuntimeError("the dump has not ended")


@contextmanager
def _writing(server: MysqlRig, settings: Settings) -> Iterator[None]:
    """Update single rows in another session, about 200 a second, until the dump has ended."""
    stop = threading.Event()
    chain = Chain(open_store(settings.store), settings.pipeline)

    def ended() -> bool:
        entry = chain.tail()
        return entry is not None and bool(chain.open_state(entry).recent)

    def write() -> None:
        with server.server.connect(database="shop", autocommit=True) as connection:
            cursor = connection.cursor()
            number = 0
            while not stop.wait(0.005) and (number % 64 or not ended()):
                number += 1
                cursor.execute(
                    "UPDATE orders SET amount = amount + 1 WHERE id = %s", (number * 7919 % 10_000,)
                )

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()


def _select(server: MysqlRig, rows: int) -> CpuCost:
    """Read the whole table's packets and drop them."""
    with server.server.connect(database="shop") as connection:
        begun, cpu = time.perf_counter(), time.process_time()
        found = read_rows(connection, _QUERY)
        return CpuCost(time.perf_counter() - begun, time.process_time() - cpu, rows=len(found))


def _pymysql(server: MysqlRig, rows: int) -> CpuCost:
    def read(limit: int) -> tuple[list[Any], list[str]]:
        with server.server.connect(database="shop") as connection:
            cursor = connection.cursor(pymysql.cursors.SSCursor)
            cursor.execute(f"{_QUERY} ORDER BY id LIMIT {limit:d}")
            names = [one[0] for one in cursor.description]
            return list(cursor.fetchall()), names

    return _library(read, rows // _LIBRARY_SHARE)


def _mysqlclient(server: MysqlRig, rows: int) -> CpuCost:
    import MySQLdb

    def read(limit: int) -> tuple[list[Any], list[str]]:
        connection = MySQLdb.connect(
            host="127.0.0.1",
            port=server.server.port,
            user="root",
            password=server.server.password,
            database="shop",
        )
        cursor = connection.cursor()
        cursor.execute(f"{_QUERY} ORDER BY id LIMIT {limit:d}")
        return list(cursor.fetchall()), [one[0] for one in cursor.description]

    return _library(read, rows // _LIBRARY_SHARE)


def _library(read: Callable[[int], tuple[list[Any], list[str]]], rows: int) -> CpuCost:
    """Write a driver's rows as Parquet, as a hand-written script would."""
    begun, cpu = time.perf_counter(), time.process_time()
    found, names = read(rows)
    columns = [pa.array(column) for column in zip(*found, strict=True)]
    table = pa.Table.from_arrays(columns, names=names)
    pq.write_table(table, pa.BufferOutputStream(), compression="zstd", compression_level=1)
    return CpuCost(time.perf_counter() - begun, time.process_time() - cpu, rows=len(found))
