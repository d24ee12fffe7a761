"""Every kind of event that the servers write, captured by a real worker and compared with them."""

from __future__ import annotations

from tests.faults.checks import check_equal
from tests.fixtures.capture import PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.mysql_writes import of_flavour, work


def test_whatever_clients_do(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    database = mysql_database
    writes = of_flavour(database.flavour)
    database.run(*(statement for one in writes for statement in one.before))
    if database.flavour != "mariadb":
        database.server.run("SET GLOBAL local_infile = ON")
    shop = pipeline_of(database)
    shop.drain()
    dumped = shop.manifest().last_seq
    work(database, writes)
    shop.drain()
    tables = [f"{database.name}.{table}" for one in writes for table in one.tables]
    captured = check_equal(shop.settings, database, tables)
    for one in writes:
        if one.operations is not None:
            changes = captured.table(f"{database.name}.{one.tables[0]}")
            found = "".join(c.op for c in changes if c.seq > dumped and c.op != "r")
            assert found == one.operations, one.name
