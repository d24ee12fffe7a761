# ruff: noqa: S608  statements are made of constants and our own names
"""XA transactions: their rows are in the log at PREPARE, and in the chain after COMMIT only."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    make_mysql_database,
    purge_logs,
)
from tests.fixtures.mysql_writes import run_sessions
from tests.support.checks import check_equal, read_chain
from tideline.contract.open_state import TableCondition

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
    "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
    "CREATE TABLE other.t (id INT PRIMARY KEY)",
)


@pytest.fixture
def database(mysql_database: MysqlDatabase) -> Iterator[MysqlDatabase]:
    """What is still prepared at the end is rolled back: it would hold up DROP DATABASE."""
    mysql_database.run("DROP DATABASE IF EXISTS other", "CREATE DATABASE other", *TABLES)
    yield mysql_database
    for format_id, gtrid, _, found in mysql_database.rows("XA RECOVER"):
        data = found.decode() if isinstance(found, bytes) else found
        mysql_database.run(f"XA ROLLBACK '{data[:gtrid]}', '{data[gtrid:]}', {format_id}")
    mysql_database.run("DROP DATABASE other")


@pytest.fixture
def shop(database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    return pipeline_of(database)


def prepared(xid: str, *statements: str) -> list[str]:
    """An XA transaction up to its PREPARE, by a session that ends then."""
    session = f"s{abs(hash(xid))}"
    work = [f"{session}: {text}" for text in statements]
    return [
        f"{session}: XA START {xid}",
        *work,
        f"{session}: XA END {xid}",
        f"{session}: XA PREPARE {xid}",
        f"drop: {session}",
    ]


def equal(shop: Pipeline[MysqlDatabase]) -> str:
    """The table's operations since its dump; it equals the source."""
    name = f"{shop.database.name}.t"
    captured = check_equal(shop.settings, shop.database, [name])
    return "".join(change.op for change in captured.table(name))


def test_held_across_workers(shop: Pipeline[MysqlDatabase]) -> None:
    """Two at once, with rows of tables that are not captured, and others' commits in between."""
    database = shop.database
    shop.drain()
    run_sessions(
        database,
        [
            *prepared(
                "'a', 'branch', 7",
                "INSERT INTO t VALUES (10, 'a')",
                "INSERT INTO other.t VALUES (10)",
                "UPDATE t SET v = 'a' WHERE id = 1",
            ),
            "INSERT INTO t VALUES (3, 'x')",
            *prepared("'b'", "INSERT INTO t VALUES (20, 'b')"),
            *prepared("'c'", "INSERT INTO other.t VALUES (30)"),
            *prepared("'d'", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (40, 'd')"),
            "INSERT INTO t VALUES (4, 'x')",
        ],
    )
    shop.drain()
    assert len(shop.state().prepared) == 4
    found = [change.key for change in read_chain(shop.settings).table(f"{database.name}.t")]
    assert found == [("1",), ("2",), ("3",), ("4",)]
    database.run("XA COMMIT 'b'", "INSERT INTO t VALUES (5, 'x')", "XA ROLLBACK 'd'")
    shop.drain()
    assert len(shop.state().prepared) == 2
    database.run("FLUSH BINARY LOGS", "INSERT INTO t VALUES (6, 'x')")
    database.run("XA COMMIT 'a', 'branch', 7", "XA COMMIT 'c'", "INSERT INTO t VALUES (7, 'x')")
    shop.drain()
    assert not shop.state().prepared
    assert equal(shop) == "rr" + "cc" + "cc" + "c" + "cu" + "c"


def test_prepared_before_the_start(shop: Pipeline[MysqlDatabase]) -> None:
    """Its rows are in nothing that was read: every table is dumped again."""
    run_sessions(shop.database, prepared("'a'", "INSERT INTO t VALUES (10, 'a')"))
    shop.drain()
    shop.database.run("XA COMMIT 'a'", "INSERT INTO t VALUES (3, 'x')")
    shop.drain()
    assert shop.table(f"{shop.database.name}.t").condition is TableCondition.ACTIVE
    assert equal(shop) in ("rr" + "c" + "rrrr", "rr" + "rrrr" + "c")


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_larger_than_a_segment(database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    shop = pipeline_of(database, capture={"segment_bytes_max": 200_000, "batch_rows_max": 500})
    shop.drain()
    many = ", ".join(f"({number}, REPEAT('{number}', 30))" for number in range(20000, 24000))
    again = ", ".join(f"({number}, REPEAT('{number}', 30))" for number in range(5000, 9000))
    run_sessions(
        database,
        [
            *prepared(
                "'big'", f"INSERT INTO t VALUES {many}", "UPDATE t SET v = 'u' WHERE id = 20005"
            ),
            f"INSERT INTO t VALUES {again}",
            "XA COMMIT 'big'",
            "one: XA START 'one'",
            "one: DELETE FROM t WHERE id > 22000 OR id < 3",
            "one: XA END 'one'",
            "one: XA COMMIT 'one' ONE PHASE",
        ],
    )
    worker = shop.start(kill="before-part-put:3")
    assert worker.wait() == -signal.SIGKILL, worker.output()[-3000:]
    shop.drain()
    equal(shop)


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
def test_refused(shop: Pipeline[MysqlDatabase], pipeline_of: PipelineFactory) -> None:
    refusing = pipeline_of(shop.database, source={"xa": "refuse"})
    refusing.drain()
    run_sessions(
        shop.database,
        [
            "XA START 'one'",
            "INSERT INTO t VALUES (9, 'one phase')",
            "XA END 'one'",
            "XA COMMIT 'one' ONE PHASE",
        ],
    )
    refusing.drain()
    assert equal(refusing) == "rrc"
    run_sessions(shop.database, prepared("'a'", "INSERT INTO t VALUES (10, 'a')"))
    worker = refusing.start(until_idle_s=IDLE_S)
    assert worker.wait() > 0
    assert "Misconfigured:" in worker.output()
    assert 'source.xa = "hold"' in worker.output()


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_the_log_is_purged_before_the_commit(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    database = make_mysql_database(start_server(flavour), flavour)
    database.run("CREATE DATABASE other", *TABLES)
    shop = pipeline_of(database)
    shop.drain()
    run_sessions(database, prepared("'a'", "INSERT INTO t VALUES (10, 'a')"))
    database.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    shop.drain()
    purge_logs(database.server)
    database.run("XA COMMIT 'a'")
    database.run("INSERT INTO t VALUES (11, 'after')")
    worker = shop.start(until_idle_s=IDLE_S)
    assert worker.wait() > 0
    assert "SourceLost:" in worker.output()
    assert 'on_gap = "dump"' in worker.output()
    pipeline_of(database, source={"on_gap": "dump"}).drain()
    assert not shop.state().prepared
    equal(shop)
