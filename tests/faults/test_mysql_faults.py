"""MySQL and MariaDB under traffic: workers and streams killed, servers crashed, logs switched."""

from __future__ import annotations

import random
import signal
import time

import pymysql
import pytest

from tests.faults.mysql_workload import SCHEMA, MysqlWorkload, check
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import Flavour, MysqlDatabase, ServerFactory, make_mysql_database


@pytest.fixture
def shop(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    mysql_database.run(*SCHEMA)
    return pipeline_of(mysql_database, capture={"takeover_after_s": 1.0})


def kill_streams(database: MysqlDatabase) -> int:
    """End the streams of this test's user as an administrator would; how many there were."""
    killed = 0
    query = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    for (thread,) in database.rows(f"{query} AND user = '{database.cdc_user}'"):
        try:
            database.run(f"KILL {thread}")
            killed += 1
        except pymysql.MySQLError as error:
            assert error.args[0] == pymysql.constants.ER.NO_SUCH_THREAD
    return killed


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_killed_anywhere(shop: Pipeline[MysqlDatabase]) -> None:
    """Workers are killed at random moments; each next one goes on from a transaction's end."""
    random_ = random.Random(7)
    with MysqlWorkload(shop.database, seed=7) as traffic:
        for _ in range(4):
            worker = shop.start()
            worker.wait_point("after-manifest", 2)
            time.sleep(random_.random() * 0.7)
            worker.kill()
        traffic.wait_for(30)
        successor = shop.start()
        successor.wait_point("after-manifest", 3)
        traffic.wait_for(30)
    shop.finish(successor)
    assert traffic.counts["rollbacks"] > 0
    check(shop)


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
@pytest.mark.parametrize("point", ["before-part-put:5", "between-parts-and-manifest:5"])
def test_killed_at_a_point(shop: Pipeline[MysqlDatabase], point: str) -> None:
    with MysqlWorkload(shop.database, seed=1) as traffic:
        doomed = shop.start(kill=point)
        assert doomed.wait() == -signal.SIGKILL, doomed.output()[-3000:]
        successor = shop.start()
        traffic.wait_for(60)
        successor.wait_point("after-manifest", 3)
    shop.finish(successor)
    check(shop)


def test_the_log_is_switched_and_its_streams_killed(shop: Pipeline[MysqlDatabase]) -> None:
    """New files, checksums off and on, and ended streams, all while transactions run."""
    database = shop.database
    killed = 0
    with MysqlWorkload(database, seed=3) as traffic:
        worker = shop.start()
        worker.wait_point("after-manifest", 2)
        try:
            for turn in range(4):
                database.run(f"SET GLOBAL binlog_checksum = {'NONE' if turn % 2 == 0 else 'CRC32'}")
                traffic.wait_for(10)
                killed += kill_streams(database)
                worker.wait_point("reading", killed + 1)
                traffic.wait_for(10)
                database.run("FLUSH BINARY LOGS")
        finally:
            database.run("SET GLOBAL binlog_checksum = CRC32")
        traffic.wait_for(20)
    shop.finish(worker)
    assert killed > 2
    assert worker.points()["reading"] > 2
    check(shop)


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_the_server_crashes(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    """It may not lose what it has sent: so it runs as durable as one in production."""
    server = start_server(flavour, sync_binlog="1", innodb_flush_log_at_trx_commit="1")
    database = make_mysql_database(server, flavour)
    database.run(*SCHEMA, "CREATE TABLE memory (id INT PRIMARY KEY) ENGINE = MEMORY")
    database.run("INSERT INTO memory VALUES (1)")
    shop = pipeline_of(database)
    with MysqlWorkload(database, seed=5, large=False) as traffic:
        worker = shop.start()
        worker.wait_point("after-manifest", 3)
        traffic.wait_for(20)
        server.kill()
        server.start()
        worker.wait_point("reading", 2)
        traffic.wait_for(20)
        server.restart()
        database.rows("SELECT * FROM memory")
        worker.wait_point("reading", 3)
        traffic.wait_for(20)
    shop.finish(worker)
    assert traffic.counts["reconnects"] > 0
    check(shop, crashed=True)
