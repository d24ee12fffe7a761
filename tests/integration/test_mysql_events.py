"""Every kind of event that the servers write, captured by a real worker and compared with them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest
from _pytest.mark.structures import ParameterSet

from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import FLAVOURS, Flavour, MysqlDatabase
from tests.fixtures.mysql_writes import of_flavour, run_sessions, work
from tests.support.checks import check_equal


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


def stopped(shop: Pipeline[MysqlDatabase]) -> str:
    """What a worker says that must stop by itself."""
    worker = shop.start(until_idle_s=IDLE_S)
    assert worker.wait() > 0, worker.output()[-3000:]
    return worker.output()


@dataclass(frozen=True, slots=True)
class Gap:
    """Statements that leave less in the log than was changed, and what the worker says then.

    Each runs on some server; recorded logs of all of them are read in
    ``tests/unit/capture/sources/mysql/binlog/test_transactions.py``.
    """

    name: str
    statements: tuple[str, ...]
    says: tuple[str, ...]
    flavours: tuple[Flavour, ...] = FLAVOURS
    kind: str = "SourceLost"
    fails: bool = False
    """The last statement fails, and changes rows all the same."""


_STATEMENT_FORM = "SET SESSION binlog_format = 'STATEMENT'"
_MINIMAL = "SET SESSION binlog_row_image = 'MINIMAL'"

GAPS = (
    Gap(
        "statement-form",
        (_STATEMENT_FORM, "UPDATE t SET v = 'changed' WHERE id = 2"),
        ("UPDATE", "binlog_format = 'ROW'"),
        flavours=("mariadb", "mysql9"),
    ),
    Gap(
        "statement-form-of-MyISAM",
        (_STATEMENT_FORM, "INSERT INTO m VALUES (9, RAND())"),
        ("INSERT", "binlog_format = 'ROW'"),
        flavours=("mariadb",),
    ),
    Gap(
        "statement-form-of-a-file",
        (_STATEMENT_FORM, "LOAD DATA LOCAL INFILE '{file}' INTO TABLE t FIELDS TERMINATED BY ','"),
        ("LOAD DATA", 'on_gap = "dump"'),
        kind="Misconfigured",
        flavours=("mysql8",),
    ),
    Gap(
        "statement-form-of-a-query",
        (_STATEMENT_FORM, "CREATE TABLE made (PRIMARY KEY (id)) AS SELECT id FROM t"),
        ("CREATE TABLE", "binlog_format = 'ROW'"),
        flavours=("mariadb",),
    ),
    Gap(
        "minimal-image",
        (_MINIMAL, "UPDATE t SET v = 'changed' WHERE id = 2"),
        (".t", "SET GLOBAL binlog_row_image = 'FULL'", 'on_gap = "dump"'),
        kind="Misconfigured",
        flavours=("mariadb", "mysql9"),
    ),
    Gap(
        "noblob-image",
        (
            "SET SESSION binlog_row_image = 'NOBLOB'",
            "UPDATE j SET n = 2",
            "DELETE FROM j WHERE id = 2",
        ),
        (".j", "SET GLOBAL binlog_row_image = 'FULL'"),
        kind="Misconfigured",
        flavours=("mysql9",),
    ),
    Gap(
        "minimal-delete",
        (_MINIMAL, "DELETE FROM t WHERE id = 1"),
        (".t", "SET GLOBAL binlog_row_image = 'FULL'"),
        kind="Misconfigured",
        flavours=("mysql8",),
    ),
    Gap(
        "partial-json",
        (
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
            """UPDATE j SET d = JSON_SET(d, '$.a', 'bbbbbbbbbbbbbbbbbbbb')""",
        ),
        (".j", "SET GLOBAL binlog_row_value_options = ''", 'on_gap = "dump"'),
        kind="Misconfigured",
        flavours=("mysql8",),
    ),
    Gap(
        "incident",
        ("INSERT INTO m SELECT a.id * 10 + b.id, REPEAT('x', 1000) FROM f a, f b",),
        ("lost changes", 'on_gap = "dump"'),
        fails=True,
        flavours=("mariadb", "mysql9"),
    ),
    Gap(
        "rollback-to-a-savepoint-of-mixed-tables",
        (
            "BEGIN",
            "INSERT INTO t VALUES (50, 'x')",
            "SAVEPOINT a",
            "INSERT INTO m VALUES (50, 'x')",
            "INSERT INTO t VALUES (51, 'x')",
            "ROLLBACK TO a",
            "COMMIT",
        ),
        ("rolled back", 'on_gap = "dump"'),
        ("mariadb",),
    ),
    Gap(
        "rollback-of-mixed-tables",
        (
            "XA START 'x'",
            "INSERT INTO t VALUES (50, 'x')",
            "INSERT INTO m VALUES (50, 'x')",
            "XA END 'x'",
            "XA ROLLBACK 'x'",
        ),
        ("rolled back", 'on_gap = "dump"'),
        ("mariadb",),
    ),
)


def gaps() -> list[ParameterSet]:
    return [
        pytest.param(gap, flavour, id=f"{gap.name}-{flavour}")
        for flavour in FLAVOURS
        for gap in GAPS
        if flavour in gap.flavours
    ]


@pytest.mark.parametrize(("gap", "flavour"), gaps())
def test_a_gap_stops_by_name_and_is_dumped_over(
    gap: Gap, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, tmp_path: Path
) -> None:
    database = mysql_database
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
        "CREATE TABLE j (id INT PRIMARY KEY, d JSON, n INT, x TEXT)",
        """INSERT INTO j VALUES (1, '{"a": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b": 1}', 1,"""
        " 'a'), (2, NULL, 1, 'b')",
        "CREATE TABLE m (id INT PRIMARY KEY, v TEXT) ENGINE = MyISAM",
        "INSERT INTO m VALUES (-1, 'm')",
        "CREATE TABLE f (id INT PRIMARY KEY)",
        "INSERT INTO f VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    )
    shop = pipeline_of(database)
    shop.drain()
    (tmp_path / "rows.csv").write_text("11,x\n12,y\n")
    statements = [text.replace("{file}", str(tmp_path / "rows.csv")) for text in gap.statements]
    server = database.server
    if database.flavour != "mariadb":
        server.run("SET GLOBAL local_infile = ON")
    if gap.fails:
        server.run("SET GLOBAL max_binlog_stmt_cache_size = 4096")
    try:
        with pytest.raises(pymysql.MySQLError) if gap.fails else nullcontext():
            run_sessions(database, statements)
    finally:
        server.run("SET GLOBAL max_binlog_stmt_cache_size = DEFAULT")
    database.run("INSERT INTO t VALUES (100, 'after')")
    output = stopped(shop)
    assert f"{gap.kind}:" in output
    for text in gap.says:
        assert text in output
    goes_on = pipeline_of(database, source={"on_gap": "dump"})
    goes_on.drain()
    tables = [f"{database.name}.{name}" for name in "tjm"]
    captured = check_equal(shop.settings, database, tables)
    assert next(c.op for c in captured.table(tables[0]) if c.key == ("100",)) == "c"
