"""Merges that are killed, repeated and raced, while a worker captures a source under traffic."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from devtools.demo.compare import compare
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tests.support.workload import SCHEMA, Workload
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt
from tideline.planner import applied_state, plan_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = "public.orders"
TABLES = ("public.ledger", ORDERS)
"""Two are enough for a death between two commits; every one more costs Spark seconds."""
REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 300.0


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """Its segments are few: what a merge of many small ones costs is not the matter here."""
    database.run(*SCHEMA)
    limits = {"flush_interval_s": 2.5, "heartbeat_s": 1.0}
    return pipeline_of(database, source={"tables": list(TABLES)}, capture=limits)


@pytest.mark.timeout(900)
def test_killed_repeated_and_raced(
    shop: Pipeline[Database], spark: SparkSession, tmp_path: Path
) -> None:
    """A merge is killed with one table just before its commit and the other just after; the same
    plan is run again, twice; two plans that overlap run at once; at the end all of it is equal.
    Other deaths, of runs that make the tables too, are in `test_jobs_killed`."""
    with Workload(shop.database.dsn, seed=21, clients=1, pause_s=0.05) as traffic:
        worker = shop.start()
        shop.wait_state("every table is dumped", dumped)
        assert outcomes(run(spark, plan(shop, "first"))) == {Outcome.APPLIED: len(TABLES)}
        more_captured(shop, traffic)
        later = plan(shop, "killed")
        assert not any(table.create for table in later.tables)
        killed_and_repeated(later, shop, spark, tmp_path)
        more_captured(shop, traffic)
        raced(shop, spark, traffic)
    worker.terminate()
    shop.drain()
    last = run(spark, plan(shop, "last"))
    assert outcomes(last) == {Outcome.APPLIED: len(TABLES)}
    found = compare(shop.database.dsn, shop.settings.warehouse, TABLES)
    assert found.equal, found.lines()
    assert found.rows_equal > 0
    assert traffic.counts["rollbacks"] > 0


def dumped(state: OpenState) -> bool:
    tables = [state.tables.get(name) for name in TABLES]
    live = all(table is not None and table.condition is TableCondition.ACTIVE for table in tables)
    return live and not state.requests


def more_captured(shop: Pipeline[Database], traffic: Workload) -> None:
    """Return once there is something new to merge of every table."""
    before = shop.manifest().manifest_number
    traffic.wait_for(20)

    def more(state: OpenState) -> bool:
        return all(state.tables[name].last_data_manifest > before for name in TABLES)

    shop.wait_state("more of every table is captured", more)


def killed_and_repeated(
    made: Plan, shop: Pipeline[Database], spark: SparkSession, folder: Path
) -> None:
    """The plan is run to a death between two commits, then again, then once more."""
    assert {table.table for table in made.tables} == set(TABLES)
    wanted = {table.table: table.to_manifest for table in made.tables}
    points = folder / f"{made.plan_id}.points"
    doomed = subprocess.run(
        [sys.executable, "-m", "tests.faults.merger", str(shop.config), made.plan_id, str(points)],
        cwd=REPOSITORY,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert doomed.returncode == -signal.SIGKILL, doomed.stderr[-3000:]
    assert points.read_text().split() == ["before-commit", "before-commit", "after-commit"]
    merged = {name: applied_state(shop.settings).tables[name].merged for name in TABLES}
    standing = {name: one and one.manifest_number for name, one in merged.items()}
    done = {name for name in TABLES if standing[name] == wanted[name]}
    assert len(done) == 1, standing

    repeated = run(spark, made)
    assert {one.table for one in repeated.tables if one.outcome is Outcome.APPLIED} == (
        set(TABLES) - done
    )
    assert {one.table for one in repeated.tables if one.outcome is Outcome.ALREADY_APPLIED} == done
    again = run(spark, made)
    assert outcomes(again) == {Outcome.ALREADY_APPLIED: len(TABLES)}
    for receipt in (repeated, again):
        assert {one.table: one.applied_manifest for one in receipt.tables} == wanted
    assert versions(again) == versions(repeated)


def raced(shop: Pipeline[Database], spark: SparkSession, traffic: Workload) -> None:
    """Two plans from the same start, the second one longer, at their commit at the same time."""
    short = plan(shop, "short", ORDERS)
    more_captured(shop, traffic)
    long = plan(shop, "long", ORDERS)
    assert (long.tables[0].from_manifest, long.to_manifest > short.to_manifest) == (
        short.tables[0].from_manifest,
        True,
    )
    ready = threading.Barrier(2, timeout=PATIENCE_S)

    def merge(one: Plan) -> TableReceipt:
        met = threading.Event()

        def meet(point: str) -> None:
            if not met.is_set():
                met.set()
                ready.wait()

        return run(spark, one, meet).tables[0]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(merge, (short, long))
    if first.outcome is Outcome.APPLIED:
        assert second.outcome is Outcome.REFUSED, second
        assert (first.applied_manifest, second.applied_manifest) == (
            short.to_manifest,
            short.to_manifest,
        )
    else:
        assert (first.outcome, second.outcome) == (Outcome.ALREADY_APPLIED, Outcome.APPLIED)
        assert (first.applied_manifest, second.applied_manifest) == (
            long.to_manifest,
            long.to_manifest,
        )


def plan(shop: Pipeline[Database], plan_id: str, *tables: str) -> Plan:
    return plan_merge(shop.settings, plan_id=plan_id, tables=tables or None)


def run(
    spark: SparkSession, made: Plan, on_point: Callable[[str], None] = lambda point: None
) -> Receipt:
    from tideline_spark.merge import run_plan

    return run_plan(spark, made, on_point=on_point)


def outcomes(receipt: Receipt) -> Counter[Outcome]:
    return Counter(one.outcome for one in receipt.tables)


def versions(receipt: Receipt) -> dict[str, int | None]:
    return {one.table: one.target_version for one in receipt.tables}
