"""Measures the worker's memory for the largest value of each source's log.

A separate process reads each value, so that the peak is that of one value.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from devtools.benchmarks.mysql_rig import mysql_rig
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import rig, run_until_idle
from devtools.services.binlog_server import NOT_DURABLE
from devtools.services.mysql import MysqlServer
from devtools.services.valkey import ValkeyServer
from tideline.settings import Settings, make_settings

NAME = "largest_value"
MiB = 1 << 20
SIZES = (100, 300)
"""In MB of 2²⁰ bytes. The servers take up to a thousand."""

_LARGE = {**NOT_DURABLE, "max_allowed_packet": "1G", "innodb_redo_log_capacity": "4G"}
"""InnoDB allocates a tenth of that at once."""

Case = tuple[str, Settings, Callable[[int], None]]


def run(rows: int) -> Iterator[Result]:
    """Measure a row (or message) of each of `SIZES` in every source; ``rows`` is unused."""
    for cases in (_postgres, _mariadb, _mysql):
        with cases() as made:
            for what, settings, write in made:
                yield from _measured(what, settings, write)


def _measured(what: str, settings: Settings, write: Callable[[int], None]) -> Iterator[Result]:
    idle = _peak(settings)
    for size in SIZES:
        write(size)
        peak = _peak(settings)
        yield result(
            NAME,
            f"{what} of {size} MB",
            "peak memory of the worker, less that of an idle one",
            value=((peak - idle) / MiB, "MiB"),
            baseline=("the value", float(size)),
            goal="≤ 6 ×",
        )


def _peak(settings: Settings) -> int:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_read, args=(settings, theirs))
    process.start()
    theirs.close()
    peak = int(ours.recv())
    process.join()
    return peak


def _read(settings: Settings, answer: Connection) -> None:
    """Read the log until it is idle; send the process's peak memory in bytes."""
    run_until_idle(settings)
    answer.send(_peak_of_this())


def _peak_of_this() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process had")


@contextmanager
def _postgres() -> Iterator[list[Case]]:
    with rig() as source:
        cursor = source.cursor
        cursor.execute("CREATE TABLE big (id serial primary key, v text)")
        cursor.execute("ALTER TABLE big ALTER v SET STORAGE EXTERNAL")

        def row(size: int) -> None:
            cursor.execute("INSERT INTO big (v) VALUES (repeat(md5('x'), %s))", (size * 32768,))

        def message(size: int) -> None:
            cursor.execute(
                "SELECT pg_logical_emit_message(true, 'another', repeat('a', %s))", (size * MiB,)
            )

        settings = source.settings()
        yield [("PostgreSQL: a row", settings, row), ("PostgreSQL: a message", settings, message)]


@contextmanager
def _mariadb() -> Iterator[list[Case]]:
    with mysql_rig("mariadb") as source:
        row = _writer(source.cursor)

        def compressed(size: int) -> None:
            source.cursor.execute("SET GLOBAL log_bin_compress = ON")
            row(size)

        settings = source.settings(tables=["shop.big"])
        yield [
            ("MariaDB: a row", settings, row),
            ("MariaDB: a compressed row", settings, compressed),
        ]


@contextmanager
def _mysql() -> Iterator[list[Case]]:
    """Use MySQL 9: the 8.0 that `mysql_rig` starts is older than compressed transactions."""
    with TemporaryDirectory(prefix="tideline-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with (
            MysqlServer(folder / "server", version="9", settings=_LARGE) as server,
            ValkeyServer(folder / "valkey") as valkey,
        ):
            connection = server.connect(autocommit=True, read_timeout=3600)
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE shop")
            cursor.execute("USE shop")
            row = _writer(cursor)

            def compressed(size: int) -> None:
                cursor.execute("SET binlog_transaction_compression = ON")
                row(size)

            settings = make_settings(
                {
                    "pipeline": "shop",
                    "source": {
                        "url": server.url(),
                        "tables": ["shop.big"],
                        "initial": "log-only",
                    },
                    "store": {"url": f"file://{folder}/store"},
                    "control": {"url": valkey.url()},
                    "warehouse": {"url": f"file://{folder}/warehouse"},
                    "capture": {"heartbeat_s": 1.0, "takeover_after_s": 2.0},
                }
            )
            yield [("MySQL: a row", settings, row), ("MySQL: a payload", settings, compressed)]
            connection.close()


def _writer(cursor: Any) -> Callable[[int], None]:
    cursor.execute("CREATE TABLE big (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)")
    return lambda size: cursor.execute(
        f"INSERT INTO big (v) VALUES (REPEAT(SHA2('x', 256), {size * 16384:d}))"  # noqa: S608
    )
