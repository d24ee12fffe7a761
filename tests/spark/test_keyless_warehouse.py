# ruff: noqa: S608  statements are made of constants and our own names
"""A table without a key, from a real server through its log into the warehouse: n rows stay n."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.fixtures.capture import PipelineFactory
from tests.fixtures.services import Database
from tideline.contract.layout import table_path
from tideline.contract.receipt import Outcome
from tideline.contract.schema import TableId
from tideline.planner import plan_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "a int, f float8, n numeric(6,2), at timestamptz, b bytea, t text"
ODD = (
    "(1, 'NaN', 'NaN', '2026-03-29 02:30:00+01', '', '')",
    "(1, '-0', 1.5, 'infinity', NULL, NULL)",
    "(1, '0', 1.5, 'infinity', NULL, NULL)",
    "(NULL, NULL, NULL, NULL, '\\x00', repeat('large ', 4000))",
)


def test_counted_rows_of_a_real_log(
    spark: SparkSession, database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(
        f"CREATE TABLE bag ({COLUMNS})",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
    )
    for row in ODD:
        for _ in range(3):
            database.run(f"INSERT INTO bag VALUES {row}")
    pipeline = pipeline_of(database, tables={"*.bag": {"keyless": "counted"}})
    changes: tuple[tuple[str, ...], ...] = (
        (),
        (
            "DELETE FROM bag WHERE ctid = (SELECT ctid FROM bag WHERE f = 'NaN' LIMIT 1)",
            "DELETE FROM bag WHERE ctid = (SELECT ctid FROM bag WHERE f::text = '-0' LIMIT 1)",
            "UPDATE bag SET a = 2 WHERE ctid = (SELECT ctid FROM bag WHERE a IS NULL LIMIT 1)",
            "INSERT INTO bag SELECT * FROM bag WHERE n = 'NaN'",
            "UPDATE bag SET a = a",
        ),
        ("TRUNCATE bag", f"INSERT INTO bag VALUES {ODD[0]}, {ODD[0]}", "DELETE FROM bag"),
        (f"INSERT INTO bag VALUES {ODD[3]}, {ODD[3]}",),
    )
    for number, statements in enumerate(changes):
        database.run(*statements)
        pipeline.drain()
        _merge(spark, pipeline.settings, f"p{number}")
        assert _warehouse(spark, pipeline.settings) == _source(database), f"after step {number}"


def _merge(spark: SparkSession, settings: Any, plan_id: str) -> None:
    from tideline_spark.merge import run_plan

    (receipt,) = run_plan(spark, plan_merge(settings, plan_id=plan_id)).tables
    assert receipt.outcome is Outcome.APPLIED, receipt


def _warehouse(spark: SparkSession, settings: Any) -> Counter[tuple[str, ...]]:
    path = table_path(settings.warehouse.url, TableId("public", "bag"))
    rows = (
        spark.newSession()
        .read.format("delta")
        .load(path)
        .selectExpr(
            "a",
            "string(f) f",
            "string(n) n",
            "unix_micros(at) at",
            "hex(b) b",
            "t",
            "_tl_overflow o",
        )
    )
    found: Counter[tuple[str, ...]] = Counter()
    for row in rows.collect():
        texts = dict(row["o"] or {})
        values = [texts.get(name, row[name]) for name in ("a", "f", "n", "at", "b", "t")]
        found[tuple(map(str, values))] += 1
    return found


def _source(database: Database) -> Counter[tuple[str, ...]]:
    query = (
        "SELECT a, CASE f::text WHEN '0' THEN '0.0' WHEN '-0' THEN '-0.0' ELSE f::text END,"
        " n::text,"
        " CASE WHEN isfinite(at) THEN (extract(epoch FROM at) * 1000000)::bigint::text"
        " ELSE at::text END, upper(encode(b, 'hex')), t FROM bag"
    )
    return Counter(tuple(map(str, row)) for row in database.rows(query))
