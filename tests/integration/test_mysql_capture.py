"""MySQL and MariaDB captured by a real worker, as the user with exactly the documented grants."""

from __future__ import annotations

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.support.checks import check_equal
from tideline.contract.open_state import TableCondition


@pytest.fixture
def shop(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> Pipeline[MysqlDatabase]:
    mysql_database.run(
        "CREATE TABLE items (id INT PRIMARY KEY, v VARCHAR(30), d DECIMAL(9,2), t TIMESTAMP(3))",
        "INSERT INTO items VALUES (1, 'one', 1.50, '2026-01-02 03:04:05.678'), (2, NULL, -2, NULL)",
    )
    return pipeline_of(mysql_database)


def items(shop: Pipeline[MysqlDatabase]) -> list[str]:
    return [f"{shop.database.name}.items"]


def test_dump_and_log_become_the_source(shop: Pipeline[MysqlDatabase]) -> None:
    shop.drain()
    shop.database.run(
        "INSERT INTO items VALUES (3, 'three', 3, NOW(3))",
        "UPDATE items SET v = 'zwei' WHERE id = 2",
        "DELETE FROM items WHERE id = 1",
        "UPDATE items SET id = 20 WHERE id = 2",
    )
    shop.drain()
    captured = check_equal(shop.settings, shop.database, items(shop))
    assert [change.op for change in captured.table(items(shop)[0])] == ["r", "r", *"cudu"]


CASCADING = (
    "CREATE TABLE parents (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent)"
    " REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "INSERT INTO parents VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT INTO children VALUES (10, 1), (11, 1), (20, 2), (30, 3)",
)


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_what_cascades_is_dumped_after_the_fact(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    mysql_database.run(*CASCADING)
    shop = pipeline_of(mysql_database, source={"cascades": "redump"})
    shop.drain()
    mysql_database.run("DELETE FROM parents WHERE id = 1", "UPDATE parents SET id = 9 WHERE id = 2")
    shop.drain()
    tables = [f"{mysql_database.name}.{name}" for name in ("parents", "children")]
    captured = check_equal(shop.settings, mysql_database, tables)
    assert [change.op for change in captured.table(tables[1])].count("r") > 4
    assert shop.table(tables[1]).condition is TableCondition.ACTIVE


@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_what_cascades_is_refused_by_name_otherwise(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    mysql_database.run(*CASCADING)
    shop = pipeline_of(mysql_database)
    shop.drain()
    children = shop.table(f"{mysql_database.name}.children")
    assert children.condition is TableCondition.QUARANTINED
    assert "parents" in (children.reason or "")
    check_equal(shop.settings, mysql_database, [f"{mysql_database.name}.parents"])


@pytest.mark.parametrize("flavour", ["mysql9"])
def test_functional_indexes(shop: Pipeline[MysqlDatabase]) -> None:
    """MySQL keeps their values in columns that nobody can see; made before the start and after."""
    shop.database.run("CREATE INDEX before_start ON items ((UPPER(v)))")
    shop.drain()
    shop.database.run(
        "INSERT INTO items VALUES (3, 'three', 3, NULL)",
        "CREATE INDEX after_start ON items ((d * 2), (CONCAT(v, 'x')))",
        "INSERT INTO items VALUES (4, 'four', 4, NULL)",
        "UPDATE items SET v = 'zwei' WHERE id = 2",
    )
    shop.drain()
    check_equal(shop.settings, shop.database, items(shop))
