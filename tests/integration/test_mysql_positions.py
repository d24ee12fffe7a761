"""Where the log is read from: large events, servers without GTIDs, rivals, silence, and secrets."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, poll
from tests.fixtures.mysql_servers import (
    FLAVOURS,
    Flavour,
    MysqlDatabase,
    ServerFactory,
    make_mysql_database,
)
from tests.fixtures.mysql_writes import run_sessions
from tests.fixtures.settings import SettingsFactory
from tests.support.checks import check_equal, read_chain
from tideline.contract.position import MysqlPosition
from tideline_capture.sources.mysql.binlog.stream import open_stream

SILENCE_S = 5.0
LARGE = (1, 15 << 20, (16 << 20) - 200, (16 << 20) + 5, 33 << 20)


@pytest.fixture
def shop(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    mysql_database.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    return pipeline_of(mysql_database)


@pytest.fixture
def compressing(mysql_database: MysqlDatabase) -> Iterator[tuple[str, ...]]:
    """Statements that make a session's transactions come compressed, where the server can."""
    if mysql_database.flavour == "mariadb":
        mysql_database.run("SET GLOBAL log_bin_compress = ON")
        yield ()
        mysql_database.run("SET GLOBAL log_bin_compress = OFF")
    elif mysql_database.flavour == "mysql9":
        yield ("SET SESSION binlog_transaction_compression = ON",)
    else:
        yield ()


def test_rows_of_many_megabytes(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, compressing: tuple[str, ...]
) -> None:
    """In several packets, with small ones around them, plain and compressed."""
    database = mysql_database
    database.run("CREATE TABLE large (id INT PRIMARY KEY, v LONGTEXT)")
    shop = pipeline_of(database)
    shop.drain()
    rows = [
        f"INSERT INTO large VALUES ({place}, REPEAT('{place % 10}', {size}))"  # noqa: S608
        for place, size in enumerate(LARGE)
    ]
    again = [
        f"INSERT INTO large VALUES ({10 + place}, REPEAT('{place % 10}', {size}))"  # noqa: S608
        for place, size in enumerate(LARGE[2:])
    ]
    run_sessions(
        database,
        [
            *rows,
            "UPDATE large SET v = CONCAT(v, 'x') WHERE id IN (0, 3)",
            *(f"packed: {text}" for text in compressing),
            "packed: BEGIN",
            *(f"packed: {text}" for text in again),
            "packed: DELETE FROM large WHERE id IN (1, 12)",
            "packed: COMMIT",
            "INSERT INTO large VALUES (100, 'last')",
        ],
    )
    shop.drain()
    check_equal(shop.settings, database, [f"{database.name}.large"])


@pytest.mark.parametrize("flavour", ["mysql8"])
def test_mysql_without_gtids(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    """By file and offset alone, over several files and workers, with tables of both kinds."""
    server = start_server(flavour, gtid_mode="OFF", enforce_gtid_consistency="OFF")
    database = make_mysql_database(server, flavour)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE m (id INT PRIMARY KEY, v VARCHAR(200)) ENGINE = MyISAM",
    )
    shop = pipeline_of(database)
    shop.drain()
    for turn in range(3):
        run_sessions(
            database,
            [
                "BEGIN",
                f"INSERT INTO m VALUES ({turn}, 'm')",  # noqa: S608
                f"INSERT INTO t VALUES ({turn}, 't')",  # noqa: S608
                f"INSERT INTO m VALUES ({turn + 10}, 'm')",  # noqa: S608
                "COMMIT",
                "FLUSH BINARY LOGS",
                f"CREATE TABLE made_{turn} (PRIMARY KEY (id)) AS SELECT * FROM t",  # noqa: S608
                f"XA START 'x{turn}'",
                f"INSERT INTO t VALUES ({turn + 100}, 'x')",  # noqa: S608
                f"XA END 'x{turn}'",
                f"XA PREPARE 'x{turn}'",
                f"XA COMMIT 'x{turn}'",
            ],
        )
        shop.drain()
    position = shop.manifest().position
    assert isinstance(position, MysqlPosition)
    assert (position.gtids, position.by_gtid) == ("", False)
    tables = [f"{database.name}.{name}" for name in ("t", "m", "made_2")]
    captured = check_equal(shop.settings, database, tables)
    changes = captured.table(tables[0])
    assert [change.op for change in changes] == ["c"] * 6
    assert len({change.seq for change in changes}) == 6


@pytest.mark.parametrize("flavour", ["mysql8"])
def test_a_table_in_memory_is_emptied_by_a_restart(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    """Old servers log that as DELETE in statement form, of a table that is not captured at all."""
    server = start_server(flavour)
    database = make_mysql_database(server, flavour)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MEMORY",
        "INSERT INTO m VALUES (1)",
    )
    shop = pipeline_of(database)
    shop.drain()
    server.restart()
    assert not database.rows("SELECT * FROM m")
    database.run("INSERT INTO t VALUES (1)")
    shop.drain()
    check_equal(shop.settings, database, [f"{database.name}.t"])


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_a_rival_with_the_same_server_id(
    shop: Pipeline[MysqlDatabase], settings_for: SettingsFactory
) -> None:
    """Whoever takes it ends our stream; the session starts again, and nothing is lost."""
    database = shop.database
    worker = shop.start()
    worker.wait_point("reading")
    (server_id,) = [row[0] for row in database.rows("SHOW SLAVE HOSTS") if "tideline" in row]
    file, offset, *_ = database.rows("SHOW MASTER STATUS")[0]
    rival = open_stream(
        settings_for(database).source,
        MysqlPosition(file, offset),
        flavour="mariadb",
        server_id=int(server_id),
        application_name="rival",
    )
    database.run("INSERT INTO t VALUES (1, 'x')")
    worker.wait_point("reading", 2)
    rival.close()
    database.run("INSERT INTO t VALUES (2, 'x')")
    worker.terminate()
    shop.drain()
    check_equal(shop.settings, database, [f"{database.name}.t"])


def test_an_idle_server_is_no_silent_one(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """Longer than what counts as silence nothing is changed but our marks; the position moves."""
    mysql_database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    shop = pipeline_of(mysql_database, capture={"mark_timeout_s": SILENCE_S})
    worker = shop.start()
    worker.wait_point("reading")
    before = shop.manifest().position
    time.sleep(1.2 * SILENCE_S)
    poll("the position moves", lambda: shop.manifest().position != before)
    assert worker.points()["reading"] == 1, worker.output()[-2000:]
    worker.terminate()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_secret_is_told(shop: Pipeline[MysqlDatabase], pipeline_of: PipelineFactory) -> None:
    """Not in logs and errors, not in the chain, whatever goes wrong."""
    database = shop.database
    shop.drain()
    database.run("INSERT INTO t VALUES (1, 'canary-in-a-row')")
    database.run(
        f"CREATE USER 'u_{database.name}'@'localhost' IDENTIFIED BY 'Canary-In-A-Statement-1'",
        f"DROP USER 'u_{database.name}'@'localhost'",
    )
    run_sessions(
        database,
        [
            "SET SESSION binlog_row_image = 'MINIMAL'",
            "UPDATE t SET v = 'canary-in-a-row' WHERE id = 1",
            "DELETE FROM t",
        ],
    )
    outputs = []
    for _ in range(2):
        worker = shop.start(until_idle_s=IDLE_S)
        assert worker.wait() > 0
        outputs.append(worker.output())
        user = f"'{database.cdc_user}'@'127.0.0.1'"
        database.run(f"ALTER USER {user} IDENTIFIED BY 'Another-Canary-2'")
    assert "binlog_row_image" in outputs[0]
    assert "refuses us" in outputs[1]
    chain = "".join(str(manifest) for manifest in shop.manifests())
    for text in (*outputs, chain):
        assert database.cdc_password not in text
        assert "canary" not in text.lower()
    read_chain(shop.settings)
