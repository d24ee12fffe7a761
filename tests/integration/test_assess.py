"""``tideline assess`` says before what capture and merge do then: the same schemas and reasons."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tideline.contract.errors import Misconfigured
from tideline.contract.open_state import TableCondition
from tideline_capture.sources.registry import administration_of
from tideline_console.app import app

PASSWORD = "canary-6f01"
POSTGRES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN cents AS numeric(9, 2)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, total cents, wide numeric, at timestamptz,"
    " how mood, doc jsonb, raw bytea, twice bigint GENERATED ALWAYS AS (id * 2) STORED)",
    "INSERT INTO orders SELECT n, n, n, now(), 'ok', '{}', '' FROM generate_series(1, 1000) n",
    "ANALYZE orders",
    "CREATE TABLE keyless (v int)",
    "CREATE UNLOGGED TABLE volatile (id int PRIMARY KEY)",
    "CREATE TABLE ours (id int PRIMARY KEY, _tl_seq int)",
    'CREATE TABLE twins (id int PRIMARY KEY, a int, "A" int)',
    "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9)",
    "ALTER TABLE parts_1 REPLICA IDENTITY NOTHING",
    "CREATE TABLE counted (v int)",
    "ALTER TABLE counted REPLICA IDENTITY FULL",
)
MYSQL = (
    "CREATE TABLE orders (id BIGINT UNSIGNED PRIMARY KEY, total DECIMAL(9,2), wide DECIMAL(60,3),"
    " at TIMESTAMP(3) NULL, how ENUM('sad', 'ok'), doc JSON, raw BLOB,"
    " twice BIGINT GENERATED ALWAYS AS (id * 2) STORED)",
    "CREATE TABLE keyless (v INT)",
    "CREATE TABLE volatile_ (id INT PRIMARY KEY) ENGINE = MEMORY",
    "CREATE TABLE ours (id INT PRIMARY KEY, _tl_seq INT)",
    "CREATE TABLE counted (v INT)",
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    "CREATE TABLE children (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent)"
    " REFERENCES parents (id) ON DELETE CASCADE)",
)


def run(config: Path, form: str) -> str:
    words = ["assess", "--config", str(config), "--format", form]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert PASSWORD not in done.output
    return done.stdout


def document(pipeline: Pipeline[Any]) -> dict[str, dict[str, Any]]:
    """By table."""
    found = json.loads(run(pipeline.config, "json"))
    return {one["table"]: one for one in found["tables"]}


def check_against_capture(pipeline: Pipeline[Any]) -> None:
    """The assessment first, then a worker: schema by schema and reason by reason the same."""
    before = list(administration_of(pipeline.settings).assess())
    pipeline.drain()
    states = pipeline.state().tables
    assert {str(one.table) for one in before} == set(states)
    for one in before:
        state = states[str(one.table)]
        quarantined = state.condition is TableCondition.QUARANTINED
        assert (one.schema is None) == quarantined, one
        assert (one.problem, one.hint) == (state.reason, state.hint)
        if one.schema is not None:
            assert one.schema.fingerprint == state.schema


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(*POSTGRES)
    tables = {"public.counted": {"keyless": "counted"}, "public.orders": {"mode": "history"}}
    return pipeline_of(database, tables=tables)


def test_postgres_as_capture_has_it(shop: Pipeline[Database]) -> None:
    check_against_capture(shop)


def test_postgres_in_the_warehouses_words(shop: Pipeline[Database]) -> None:
    tables = document(shop)
    orders = tables["public.orders"]
    assert (orders["outcome"], orders["mode"], orders["left_out"]) == (
        "captured", "history", ["twice"],
    )  # fmt: skip
    assert {c["name"]: (c["warehouse_type"], c["key"]) for c in orders["columns"]} == {
        "id": ("bigint", True),
        "total": ("decimal(9,2)", False),
        "wide": ("string", False),
        "at": ("timestamp", False),
        "how": ("string", False),
        "doc": ("string", False),
        "raw": ("binary", False),
    }
    assert orders["target"].endswith("/warehouse/public/orders")
    assert (orders["rows"], orders["chunks"]) == (1000, 5), "chunks of 200"
    assert orders["bytes"] > 8_000
    assert tables["public.twins"]["outcome"] == "not-mergeable"
    assert "differ by case only" in tables["public.twins"]["reason"]
    quarantined = {name for name, one in tables.items() if one["outcome"] == "quarantined"}
    assert quarantined == {"public.keyless", "public.volatile", "public.ours", "public.parts"}
    assert tables["public.counted"]["outcome"] == "captured"
    assert tables["public.counted"]["rows"] is None, "nobody has analyzed it"


def test_what_it_costs_the_source(shop: Pipeline[Database]) -> None:
    cost = json.loads(run(shop.config, "json"))["cost"]
    assert (cost["tables"], cost["rows"], cost["marks"]) == (3, 1000, 2 * cost["chunks"])
    assert cost["unknown"] == ["public.counted", "public.twins"]
    assert cost["marks_per_hour"] == 14_400, "a round each half second"
    worker = shop.start()
    worker.wait_point("between-watermarks")
    shop.catch_up(worker)
    names = [one for (one,) in shop.database.rows("SELECT application_name FROM pg_stat_activity")]
    used = sum(one.startswith(f"tideline {shop.settings.pipeline}") for one in names)
    worker.terminate()
    assert 3 <= used <= cost["connections"]


def test_text_and_csv_say_the_same(shop: Pipeline[Database]) -> None:
    text = run(shop.config, "text")
    assert "public.keyless is quarantined: it has no key" in text
    assert "hint: ALTER TABLE" in text
    assert "7 tables: 2 captured, 1 not-mergeable, 4 quarantined" in text
    assert "twice is left out" in text
    rows = list(csv.DictReader(io.StringIO(run(shop.config, "csv"))))
    by_column = {(row["table"], row["column"]): row for row in rows}
    assert by_column["public.orders", "total"]["warehouse_type"] == "decimal(9,2)"
    assert by_column["public.orders", "twice"]["outcome"] == "left out"
    assert by_column["public.keyless", ""]["outcome"] == "quarantined"
    assert "no key" in by_column["public.keyless", ""]["reason"]


@pytest.fixture
def reader(postgres: PostgresServer, database: Database) -> Iterator[str]:
    """A role that may read and nothing else."""
    name = f"reader_{uuid.uuid4().hex[:6]}"
    database.run(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
    yield postgres.dsn(database.name, user=name, password=PASSWORD)
    database.run(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


def test_tables_that_the_role_may_not_publish(
    database: Database, reader: str, pipeline_of: PipelineFactory
) -> None:
    """The publication has one table of two, and is someone else's; before it is made, nothing says
    that it will not have both."""
    role = reader.partition("//")[2].partition(":")[0]
    database.run(
        "CREATE TABLE here (id int PRIMARY KEY)",
        "CREATE TABLE there (id int PRIMARY KEY)",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}",
    )
    shop = pipeline_of(database, source={"url": reader, "publication": "others"})
    assert {one["outcome"] for one in document(shop).values()} == {"captured"}
    database.run(
        "CREATE PUBLICATION others FOR TABLE here WITH (publish_via_partition_root = true)"
    )
    assert document(shop)["public.there"]["outcome"] == "quarantined"
    check_against_capture(shop)


def test_a_foreign_table_is_named(database: Database, pipeline_of: PipelineFactory) -> None:
    database.run(
        "CREATE FOREIGN DATA WRAPPER none",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER none",
        "CREATE FOREIGN TABLE far (id int) SERVER elsewhere",
    )
    far = document(pipeline_of(database))["public.far"]
    assert (far["outcome"], far["hint"]) == ("quarantined", None)
    assert "foreign table" in far["reason"]


def test_mysql_and_mariadb(mysql_database: MysqlDatabase, pipeline_of: PipelineFactory) -> None:
    mysql_database.run(*MYSQL)
    name = mysql_database.name
    shop = pipeline_of(mysql_database, tables={f"{name}.counted": {"keyless": "counted"}})
    tables = document(shop)
    orders = {c["name"]: c["warehouse_type"] for c in tables[f"{name}.orders"]["columns"]}
    assert orders == {
        "id": "decimal(20,0)",
        "total": "decimal(9,2)",
        "wide": "string",
        "at": "timestamp",
        "how": "string",
        "doc": "string",
        "raw": "binary",
        "twice": "bigint",
    }
    quarantined = {table for table, one in tables.items() if one["outcome"] == "quarantined"}
    unlogged = [] if mysql_database.flavour == "mysql9" else ["children"]
    assert quarantined == {f"{name}.{one}" for one in ("keyless", "volatile_", "ours", *unlogged)}
    check_against_capture(shop)


def test_a_format_that_there_is_not(shop: Pipeline[Database]) -> None:
    with pytest.raises(Misconfigured, match="there is no format 'xml'"):
        CliRunner().invoke(
            app, ["assess", "--config", str(shop.config), "--format", "xml"], catch_exceptions=False
        )
