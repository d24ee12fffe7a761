"""MySQL and MariaDB captured by a real worker, as the user with exactly the documented grants."""

from __future__ import annotations

import pytest

from tests.faults.checks import check_equal
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase


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
