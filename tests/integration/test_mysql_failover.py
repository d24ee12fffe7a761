"""Another server in the place of the one that was: a replica that has all, and others."""

from __future__ import annotations

import dataclasses

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    catch_up,
    follow,
    make_mysql_database,
    promote,
    purge_logs,
)
from tests.support.checks import check_equal

TABLE = "CREATE TABLE items (id INT PRIMARY KEY, v INT)"


def moved(shop: Pipeline[MysqlDatabase], database: MysqlDatabase) -> None:
    """From now on the pipeline's settings name ``database``'s server."""
    text = shop.config.read_text()
    shop.config.write_text(text.replace(shop.database.cdc_url, database.cdc_url))


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_a_promoted_replica_is_followed_by_gtid(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    primary, replica = start_server(flavour), start_server(flavour)
    follow(replica, primary)
    old = make_mysql_database(primary, flavour)
    old.run(TABLE, "INSERT INTO items VALUES (1, 0), (2, 0), (3, 0), (5, 0)")
    shop = pipeline_of(old)
    shop.drain()
    old.run("UPDATE items SET v = 1 WHERE id < 3")
    shop.drain()
    before = shop.manifest()
    # What the chain does not have yet when the old server goes; also a log of another shape.
    old.run("INSERT INTO items VALUES (100, 1)", "UPDATE items SET v = 2 WHERE id = 1")
    catch_up(replica, primary)
    primary.stop()
    promote(replica)
    new = dataclasses.replace(old, server=replica)
    replica.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    new.run("INSERT INTO items VALUES (101, 1)")
    moved(shop, new)
    shop.drain()
    new.run("DELETE FROM items WHERE id = 5")
    shop.drain()
    new.run("INSERT INTO items VALUES (102, 1)")
    shop.drain()
    table = f"{old.name}.items"
    captured = check_equal(shop.settings, new, [table])
    later = [change.op for change in captured.table(table) if change.seq > before.last_seq]
    assert later == ["c", "u", "c", "d", "c"]
    assert shop.manifest().identity.system_id != before.identity.system_id


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_a_stranger_is_refused(
    flavour: Flavour,
    mysql_database: MysqlDatabase,
    start_server: ServerFactory,
    pipeline_of: PipelineFactory,
) -> None:
    mysql_database.run(TABLE)
    shop = pipeline_of(mysql_database)
    shop.drain()
    other = start_server(flavour)
    stranger = make_mysql_database(other, flavour)
    moved(shop, stranger)
    worker = shop.start()
    assert worker.wait() != 0
    assert "SourceLost" in worker.output() and "another server" in worker.output()


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_a_purged_log_is_a_named_gap(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    server = start_server(flavour)
    database = make_mysql_database(server, flavour)
    database.run(TABLE)
    shop = pipeline_of(database)
    shop.drain()
    database.run("INSERT INTO items VALUES (1, 1)")
    server.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge_logs(server)
    worker = shop.start()
    assert worker.wait() != 0
    assert "SourceLost" in worker.output() and "purged its log" in worker.output()


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_a_log_that_was_reset_is_not_the_one_it_was(
    flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
) -> None:
    server = start_server(flavour)
    database = make_mysql_database(server, flavour)
    database.run(TABLE, "INSERT INTO items VALUES (1, 1)")
    shop = pipeline_of(database)
    shop.drain()
    server.run("RESET MASTER")
    worker = shop.start()
    assert worker.wait() != 0
    assert "SourceLost" in worker.output()
