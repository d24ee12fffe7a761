"""Merges 10,000 changes into a million rows, and the same rows by a bare MERGE."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from devtools.benchmarks import orders
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle, spark_application
from tideline.planner import plan_merge
from tideline.settings import Settings
from tideline_spark.merge import run_plan

NAME = "merge"
CHANGES = 10_000
ROUNDS = 6
_MERGE = """
MERGE INTO delta.`{target}` t USING bare s ON t.id = s.id
WHEN MATCHED AND s._tl_seq > t._tl_seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


def run(rows: int) -> Iterator[Result]:
    """Measure medians of the last rounds of a warm application; the table has 2 × ``rows`` rows."""
    table_rows = rows * 2
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, table_rows)
        settings = server.settings(initial="dump", chunk_rows=50_000)
        run_until_idle(settings, server)
        with spark_application() as spark:
            run_plan(spark, plan_merge(settings, plan_id="initial"))
            ours, bare = _rounds(spark, server, settings, table_rows)
        yield result(
            NAME,
            f"{CHANGES} changes into {table_rows} rows",
            "wall of one merge",
            value=(_median(ours), "s"),
            baseline=("bare MERGE of the same rows", _median(bare)),
            goal="≤ 1.5 of the bare MERGE",
        )


def _rounds(
    spark: Any, server: CaptureRig, settings: Settings, rows: int
) -> tuple[list[float], list[float]]:
    target = Path(settings.warehouse.url.removeprefix("file://")) / "public" / "orders"
    twin = target.parent / "bare"
    shutil.copytree(target, twin)
    ours, bare = [], []
    for number in range(ROUNDS):
        first = rows - (number + 1) * CHANGES
        server.cursor.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s",
            (first, first + CHANGES - 1),
        )
        run_until_idle(settings, server)
        plan = plan_merge(settings, plan_id=f"round-{number}")
        begun = time.perf_counter()
        receipt = run_plan(spark, plan)
        ours.append(time.perf_counter() - begun)
        if receipt.tables[0].updated != CHANGES:
            raise AssertionError(f"the merge updated {receipt.tables[0].updated} rows")
        bare.append(_bare(spark, plan, twin))
    return ours[ROUNDS // 2 :], bare[ROUNDS // 2 :]


def _bare(spark: Any, plan: Any, twin: Path) -> float:
    paths = [f"{plan.store_url}/{part.key}" for part in plan.tables[0].parts]
    begun = time.perf_counter()
    source = spark.read.parquet(*paths).drop("_tl_op", "_tl_tx")
    for name, kind in (("_tl_overflow", "map<string,string>"), ("_tl_pending", "array<string>")):
        source = source.selectExpr("*", f"cast(null AS {kind}) AS {name}")
    source.createOrReplaceTempView("bare")
    spark.sql(_MERGE.format(target=twin)).collect()
    return time.perf_counter() - begun


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
