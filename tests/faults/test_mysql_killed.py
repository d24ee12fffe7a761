"""Workers and servers that die, sleep, refuse or are away, under traffic, on MySQL and MariaDB."""

from __future__ import annotations

import signal
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.faults.mysql_workload import SCHEMA, MysqlWorkload, check
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.mysql_readers import reading_only
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    make_mysql_database,
)
from tests.support.checks import check_equal
from tideline.contract.manifest import ManifestKind

SLOW = {"chunk_rows": 100, "delay_ms": 50, "takeover_after_s": 1.0}
"""The first dump takes a second at least."""
CANARY = "canary-5afe"
MISSED_S = 3.0
"""After so long a session that was killed and not missed was none that is in use."""


@pytest.mark.parametrize(
    ("flavour", "point", "count", "read_only"),
    [
        ("mariadb", "before-part-put", 6, False),
        ("mariadb", "between-parts-and-manifest", 6, False),
        ("mariadb", "between-watermarks", 7, True),
        ("mysql8", "between-watermarks", 5, False),
        ("mysql8", "after-manifest", 8, False),
        ("mysql8", "between-chunks", 8, True),
    ],
)
def test_killed_at_a_point(
    mysql_database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    point: str,
    count: int,
    read_only: bool,
) -> None:
    source = reading_only(mysql_database) if read_only else {}
    mysql_database.run(*SCHEMA)
    shop = pipeline_of(mysql_database, source=source, capture=SLOW)
    with MysqlWorkload(mysql_database, seed=1) as traffic:
        doomed = shop.start(kill=f"{point}:{count}")
        assert doomed.wait() == -signal.SIGKILL, doomed.output()[-3000:]
        assert doomed.points()[point] >= count
        killed_at = shop.manifest()
        assert not killed_at.released
        successor = shop.start()
        traffic.wait_for(100)
        successor.wait_point("after-manifest", 3)
    shop.finish(successor)
    assert traffic.counts["rollbacks"] > 0
    taken = [m for m in check(shop).manifests if m.kind is ManifestKind.TAKEOVER]
    assert [m.manifest_number for m in taken] == [killed_at.manifest_number + 1]


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_a_worker_that_slept_is_fenced_when_it_wakes(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """Its stream and the other's are open at the same time, under server ids of their own."""
    mysql_database.run(*SCHEMA)
    shop = pipeline_of(mysql_database, capture=SLOW)
    with MysqlWorkload(mysql_database, seed=12) as traffic:
        sleeper = shop.start(stop="between-parts-and-manifest:6")
        sleeper.wait_stopped()
        last = shop.manifest().manifest_number
        successor = shop.start()
        poll("another worker takes over", lambda: shop.manifest().manifest_number > last)
        successor.wait_point("reading")
        successor.wait_point("after-manifest", 5)
        poll("both read the log", lambda: len(streams(mysql_database)) == 2)
        sleeper.signal(signal.SIGCONT)
        assert sleeper.wait() == 6, sleeper.output()[-3000:]
        assert "Fenced" in sleeper.output()
        assert "Traceback" not in sleeper.output()
        traffic.wait_for(50)
        successor.wait_point("after-manifest", successor.points()["after-manifest"] + 3)
        assert successor.points()["reading"] == 1
    successor.terminate()
    shop.drain()
    captured = check(shop)
    assert len({manifest.writer for manifest in captured.manifests}) == 3


STREAMS = (
    "SELECT id FROM information_schema.processlist"
    " WHERE command LIKE 'Binlog Dump%' AND user = '{user}'"
)

SESSIONS = "SELECT id FROM information_schema.processlist WHERE user = '{user}' ORDER BY id"


def streams(database: MysqlDatabase) -> list[int]:
    """The sessions of the pipeline's user that read the log."""
    return [int(row[0]) for row in database.rows(STREAMS.format(user=database.cdc_user))]


class TestServerAway:
    """The worker's session ends and the next one goes on, dump included, in the same process."""

    @pytest.mark.parametrize(("flavour", "read_only"), [("mariadb", False), ("mysql8", True)])
    def test_killed_and_restarted(
        self,
        flavour: Flavour,
        start_server: ServerFactory,
        pipeline_of: PipelineFactory,
        read_only: bool,
    ) -> None:
        server = start_server(flavour)
        database = make_mysql_database(server, flavour)
        database.run(*SCHEMA)
        source = reading_only(database) if read_only else {}
        shop = pipeline_of(database, source=source, capture=SLOW)
        with MysqlWorkload(database, seed=41, large=False) as traffic:
            worker = shop.start()
            knows_tables(shop)
            server.kill()
            worker.wait_output("it starts again")
            server.start()
            worker.wait_point("reading", 2)
            traffic.wait_for(50)
            server.restart()
            worker.wait_point("reading", 3)
            traffic.wait_for(50)
        assert traffic.counts["reconnects"] > 0
        assert worker.points()["reading"] <= 6
        worker.terminate()
        shop.drain()
        check(shop, crashed=True)

    @pytest.mark.parametrize("flavour", ["mariadb"])
    def test_half_an_event_at_the_end_of_its_log_is_a_named_stop(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        """MariaDB leaves it there, where MySQL cuts it off; whether the server lost what it had
        promised with it cannot be told."""
        server = start_server(flavour)
        database = make_mysql_database(server, flavour)
        database.run(*SCHEMA)
        shop = pipeline_of(database)
        shop.drain()
        file = database.rows("SHOW BINARY LOGS")[-1][0]
        folder = database.rows("SELECT @@datadir")[0][0]
        server.stop()
        with (Path(folder) / file).open("ab") as log:
            log.write(struct.pack("<IBIIIH", 1, 2, 7, 1000, 10_000_000, 0) + b"half of it")
        server.start()
        worker = shop.start()
        assert worker.wait() == 4, worker.output()
        assert "ends in the middle of an event" in worker.output()

    @pytest.mark.parametrize("flavour", ["mariadb"])
    def test_away_at_the_start(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        server = start_server(flavour)
        database = make_mysql_database(server, flavour)
        database.run(*SCHEMA)
        shop = pipeline_of(database, capture=SLOW)
        server.stop()
        worker = shop.start()
        assert worker.wait() == 3, worker.output()
        assert "the source cannot be reached" in worker.output()
        server.start()
        shop.drain()
        check(shop)

    @pytest.mark.parametrize("flavour", ["mariadb"])
    def test_connections_are_cut(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        """Each of the worker's sessions in turn, the stream among them."""
        mysql_database.run(*SCHEMA)
        shop = pipeline_of(mysql_database, capture={**SLOW, "catalog_interval_s": 0.2})
        with MysqlWorkload(mysql_database, seed=42) as traffic:
            worker = shop.start()
            for cut in range(5):
                worker.wait_point("reading", cut + 1)
                knows_tables(shop)
                cut_one(mysql_database, worker, cut)
                worker.wait_point("reading", cut + 2)
            traffic.wait_for(20)
        assert "Traceback" not in worker.output()
        worker.terminate()
        shop.drain()
        check(shop)


def cut_one(database: MysqlDatabase, worker: WorkerProcess, number: int) -> None:
    """End the worker's session of that number, counted round, and return once the worker notices;
    where it does not, it had closed that one itself, and another one has its turn."""
    before, killed_at = failures(worker), float("-inf")

    def noticed() -> bool:
        nonlocal killed_at
        if failures(worker) > before:
            return True
        ids = database.rows(SESSIONS.format(user=database.cdc_user))
        if ids and time.monotonic() - killed_at > MISSED_S:
            kill(database, int(ids[number % len(ids)][0]))
            killed_at = time.monotonic()
        return False

    poll("the worker notices", noticed)


def failures(worker: WorkerProcess) -> int:
    """How many sessions have failed."""
    return worker.output().count("it starts again")


def kill(database: MysqlDatabase, session: int) -> None:
    try:
        database.run(f"KILL {session}")
    except pymysql.err.OperationalError as error:
        if error.args[0] != pymysql.constants.ER.NO_SUCH_THREAD:
            raise


def knows_tables(shop: Pipeline[MysqlDatabase]) -> None:
    shop.wait_state("the worker knows the tables", lambda state: bool(state.tables))


class TestRefused:
    """The server does not let us in."""

    @pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
    def test_a_wrong_password(
        self, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        url = mysql_database.server.url(mysql_database.cdc_user, CANARY)
        worker = pipeline_of(mysql_database, source={"url": url}).start()
        assert worker.wait() == 2, worker.output()
        assert "Access denied" in worker.output()
        assert "TIDELINE_SOURCE__PASSWORD" in worker.output()
        assert CANARY not in worker.output()

    @pytest.mark.parametrize("flavour", ["mariadb"])
    def test_no_connection_is_left(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        """It is asked again, and goes on when there is one."""
        server = start_server(flavour, max_connections="12")
        database = make_mysql_database(server, flavour)
        database.run("CREATE TABLE items (id INT PRIMARY KEY)", "INSERT INTO items VALUES (1)")
        shop = pipeline_of(database)
        worker = shop.start()
        shop.wait_state("the dump ends", lambda s: bool(s.tables) and not s.requests)
        # One is kept for superusers, and this is the one who has it.
        with database.connect() as connection, connection.cursor() as cursor:

            def refused() -> bool:
                """A session that ends leaves connections behind, which the next one may get."""
                cursor.execute(STREAMS.format(user=database.cdc_user))
                for (stream,) in cursor.fetchall():
                    with suppress(pymysql.err.OperationalError):  # It has gone by itself.
                        cursor.execute(f"KILL {stream}")
                return "Too many connections" in worker.output()

            with all_connections(database):
                poll("the worker is refused", refused)
            cursor.execute("INSERT INTO items VALUES (2)")
        poll("it goes on", lambda: shop.rows_of("c") > 0)
        worker.terminate()
        shop.drain()
        check_equal(shop.settings, database, [f"{database.name}.items"])


@contextmanager
def all_connections(database: MysqlDatabase) -> Iterator[None]:
    """Every connection of the server is in use, but the one that is kept for superusers; one that
    becomes free is taken at once."""
    options = {"user": database.cdc_user, "password": database.cdc_password}
    taken: list[Any] = []
    stopping = threading.Event()

    def take() -> None:
        while not stopping.is_set():
            try:
                taken.append(database.server.connect(**options))
            except pymysql.err.OperationalError as error:
                assert error.args[0] == pymysql.constants.ER.CON_COUNT_ERROR
                stopping.wait(0.001)

    taker = threading.Thread(target=take)
    taker.start()
    try:
        yield
    finally:
        stopping.set()
        taker.join()
        for connection in taken:
            connection.close()
