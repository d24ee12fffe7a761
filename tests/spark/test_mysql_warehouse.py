# ruff: noqa: S608  statements are made of constants and our own names
"""MySQL's and MariaDB's values of every type, from the server through the chain into Delta.

One merge creates the tables from a dump, another inserts, updates, moves and deletes rows that
came by the log. The warehouse is read without Spark, and must say the server's own texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from devtools.demo.compare import read_warehouse
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_cases import cases_of, create_statement, insert_statements
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.source_text import column_texts
from tideline.contract.layout import table_path
from tideline.contract.receipt import Outcome
from tideline.contract.schema import TableSchema, parse_table
from tideline.contract.types import Kind
from tideline.planner import plan_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LENIENT = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
KEYS = (
    "k_unsigned BIGINT UNSIGNED, k_decimal DECIMAL(20,4), k_text VARCHAR(20) COLLATE"
    " utf8mb4_general_ci, k_bytes BINARY(4), k_day DATE, k_moment DATETIME(6), k_at TIMESTAMP(3),"
    " k_clock TIME(6), k_year YEAR, k_bits BIT(9), k_label ENUM('b', 'a'), k_float FLOAT"
)
KEY_ROWS = (
    "(18446744073709551615, 1.5, 'ż', x'6100', '0001-01-01', '9999-12-31 23:59:59.999999',"
    " '2038-01-19 03:14:07.999', '-838:59:59', 0, 257, 0, 3.3)",
    "(0, -1.5, 'A ', x'00', '9999-12-31', '0001-01-01', '1970-01-01 00:00:01', '-00:00:00.000001',"
    " 2155, 1, 'a', -0.5)",
    "(1, 0, '', x'', '1582-10-10', '1582-10-10 01:02:03.4', '2024-03-31 02:30:00', '12:00:00',"
    " 1901, 0, 'b', 1e-30)",
    "(2, 0, 'moves', x'01', '2024-02-29', '2024-02-29', '2024-02-29', '0', 2024, 2, 'b', 0)",
)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("flavour", ["mariadb", "mysql8"])
def test_the_warehouse_says_what_the_server_says(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, spark: SparkSession
) -> None:
    database = mysql_database
    cases = cases_of(database.flavour)
    key = ", ".join(word for word in KEYS.split() if word.startswith("k_"))
    run(
        database,
        create_statement("cases", cases),
        *insert_statements("cases", cases),
        f"CREATE TABLE by_key ({KEYS}, v INT, PRIMARY KEY ({key}))",
        *(f"INSERT INTO by_key ({key}) VALUES {row}" for row in KEY_ROWS),
    )
    shop = pipeline_of(database)
    shop.drain()
    merge(shop, spark, "created")
    check(shop)
    names = [name for name, _ in cases]
    listed, sets = ", ".join(names), ", ".join(f"a.{name} = b.{name}" for name in names)
    run(
        database,
        f"INSERT INTO cases SELECT id + 1000, {listed} FROM cases",
        f"UPDATE cases a JOIN cases b ON b.id = (a.id + 7) % 23 SET {sets} WHERE a.id < 23",
        "UPDATE cases SET id = id + 500 WHERE id < 5",
        "DELETE FROM cases WHERE id BETWEEN 6 AND 9",
    )
    run(
        database,
        "UPDATE by_key SET v = 1 WHERE k_unsigned <> 2",
        "UPDATE by_key SET k_text = 'moved', k_clock = '-1:00:00' WHERE k_text = 'moves'",
        "DELETE FROM by_key WHERE k_bytes = x'00000000' AND k_text = 'A'",
    )
    shop.drain()
    merge(shop, spark, "merged")
    kinds = check(shop)
    assert kinds == set(Kind) - {Kind.BOOLEAN}, "a logical type was not tried"


def run(database: MysqlDatabase, *statements: str) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (LENIENT, *statements):
            cursor.execute(statement)


def merge(shop: Pipeline[MysqlDatabase], spark: SparkSession, plan_id: str) -> None:
    from tideline_spark.merge import run_plan  # heavy

    receipt = run_plan(spark, plan_merge(shop.settings, plan_id=plan_id))
    assert len(receipt.tables) == 2
    assert {table.outcome for table in receipt.tables} == {Outcome.APPLIED}, receipt
    assert not any(table.pending for table in receipt.tables)


def check(shop: Pipeline[MysqlDatabase]) -> set[Kind]:
    """Every value of every row as text; the logical types that were looked at."""
    kinds = set()
    for table in ("cases", "by_key"):
        state = shop.table(f"{shop.database.name}.{table}")
        schema = shop.chain.read_schema(str(state.schema))
        source = {row[: len(schema.key)]: row for row in keyed(shop.database.texts(schema), schema)}
        stored = {
            row[: len(schema.key)]: row for row in keyed(warehouse_rows(shop, schema), schema)
        }
        assert stored.keys() == source.keys(), table
        names = [*schema.key, *(n for n in schema.column_names if n not in schema.key)]
        wrong = {
            (names[at], schema.column(names[at]).source_type): (stored[key][at], row[at])
            for key, row in source.items()
            for at in range(len(names))
            if stored[key][at] != row[at]
        }
        assert not wrong, wrong
        kinds |= {column.logical.kind for column in schema.columns}
    return kinds


def keyed(
    rows: list[tuple[str | None, ...]], schema: TableSchema
) -> Iterator[tuple[str | None, ...]]:
    """The values of each row, those of the key first."""
    places = [schema.column_names.index(name) for name in schema.key]
    places += [at for at, name in enumerate(schema.column_names) if name not in schema.key]
    seen = 0
    for row in rows:
        seen += 1
        yield tuple(row[place] for place in places)
    assert seen


def warehouse_rows(
    shop: Pipeline[MysqlDatabase], schema: TableSchema
) -> list[tuple[str | None, ...]]:
    found = read_warehouse(table_path(shop.settings.warehouse.url, parse_table(schema.table)), {})
    batch = pa.table(found).combine_chunks().to_batches()[0]
    columns = [column_texts(batch, one.name, one.logical) for one in schema.columns]
    return list(zip(*columns, strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flavour", ["mariadb"])
def test_the_first_changes_of_a_new_table_are_changes_to_who_reads_the_log_of_them(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, spark: SparkSession
) -> None:
    """Compliance as ``append``, a table whose creation is in the log has inserts, and no row of a
    dump; as ``current`` it is whole."""
    from tideline_spark.merge import run_plan  # heavy

    database = mysql_database
    database.run("CREATE TABLE old (id INT PRIMARY KEY, v INT)")
    shop = pipeline_of(database, tables={"*.logged": {"mode": "append"}})
    shop.drain()
    for name in ("logged", "plain"):
        database.run(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {name} VALUES (1, 10), (2, 20)",
            f"UPDATE {name} SET v = 11 WHERE id = 1",
            f"DELETE FROM {name} WHERE id = 2",
        )
    shop.drain()
    receipt = run_plan(spark, plan_merge(shop.settings, plan_id="new-tables"))
    assert {table.outcome for table in receipt.tables} == {Outcome.APPLIED}, receipt

    def read(name: str) -> list[dict[str, object]]:
        path = table_path(shop.settings.warehouse.url, parse_table(f"{database.name}.{name}"))
        rows = pa.table(read_warehouse(path, {})).to_pylist()
        return sorted(rows, key=lambda row: row.get("_sequence_num", 0))

    logged = [(row["_operation"], row["id"], row["v"]) for row in read("logged")]
    assert logged == [("insert", 1, 10), ("insert", 2, 20), ("update", 1, 11), ("delete", 2, None)]
    assert [(row["id"], row["v"]) for row in read("plain")] == [(1, 11)]
