"""Runs merge plans: reads parts, makes one commit per table, and writes a receipt.

``spark-submit merge.py --plan URL --receipt URL`` runs one plan; `run_plan` serves a long-lived
session. The addresses are read and written through Spark's file system. Exit status: 0 when every
table is applied, 1 when one failed or was refused (the receipt says why), 2 without a receipt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from pyspark.sql import SparkSession

from tideline.contract import layout
from tideline.contract.errors import TidelineError
from tideline.contract.moves import PlannedMove
from tideline.contract.plan import Plan, PlannedSwap, TablePlan, decode_plan
from tideline.contract.receipt import Outcome, Receipt, TableReceipt, stored_documents
from tideline_spark.attempts import Patience
from tideline_spark.describe import describe_idle
from tideline_spark.entry import run_job, say
from tideline_spark.failures import unexpected
from tideline_spark.files import read_document, write_document
from tideline_spark.move import MoveRun
from tideline_spark.planned_manifests import PlannedManifests
from tideline_spark.session import side_by_side
from tideline_spark.shared_files import files_seen_by_all
from tideline_spark.swap import SwapRun
from tideline_spark.table_receipts import failed, failed_move, failed_swap
from tideline_spark.table_run import TableRun

RETRIES_MAX = 8


def run_plan(
    spark: SparkSession,
    plan: Plan,
    *,
    retries_max: int = RETRIES_MAX,
    retry_s: float = 0.0,
    tables_at_once: int | None = None,
    on_point: Callable[[str], None] = lambda point: None,
) -> Receipt:
    """Merge every table of ``plan``; any error of a table is in its receipt, and the others
    continue.

    A lost race is retried up to ``retries_max`` times, a transient failure for ``retry_s``.
    ``tables_at_once`` are merged in parallel; None: one for each core.

    May be run twice, killed or raced: each table is brought to its end once. ``on_point`` is called
    with ``before-commit`` and ``after-commit`` around each table's commit, in the committing
    thread. Raises as `files_seen_by_all` does.
    """
    patience = Patience(races_max=retries_max, retry_s=retry_s)
    with ThreadPoolExecutor(max_workers=side_by_side(spark, tables_at_once)) as pool:
        return run_in_pool(spark, plan, patience, pool, on_point=on_point)


def run_in_pool(
    spark: SparkSession,
    plan: Plan,
    patience: Patience,
    pool: Executor,
    *,
    on_point: Callable[[str], None] = lambda point: None,
    on_ended: Callable[[TableReceipt], None] = lambda receipt: None,
) -> Receipt:
    """Run ``plan`` as `run_plan` does, with the threads of ``pool``, which other plans may share.
    ``on_ended`` gets each table's receipt at once, in the thread that merged it."""
    began = time.monotonic()
    planned_manifests = PlannedManifests(spark, plan)

    def merge(table: TablePlan) -> TableReceipt:
        make = partial(TableRun, spark, plan, table, on_point, planned_manifests)
        receipt = _ran(make, patience, partial(failed, table), f"beginning with {table.table}")
        on_ended(receipt)
        return receipt

    def swap(planned: PlannedSwap) -> TableReceipt:
        make = partial(SwapRun, spark, plan, planned, on_point, planned_manifests)
        return _ran(make, patience, partial(failed_swap, planned), f"swapping {planned.table}")

    def move(planned: PlannedMove) -> TableReceipt:
        make = partial(MoveRun, spark, plan, planned, on_point, planned_manifests)
        return _ran(make, patience, partial(failed_move, planned), f"moving {planned.table}")

    targets = [table.target for table in plan.tables]
    targets += [one.target for one in plan.swaps] + [one.target for one in plan.descriptions]
    targets += [one.target for one in plan.moves]
    with files_seen_by_all(spark, plan.store_url, targets):
        receipts = tuple(pool.map(merge, plan.tables))
        receipts += tuple(swap(planned) for planned in plan.swaps)
        receipts += tuple(move(planned) for planned in plan.moves)
    return Receipt(
        plan_id=plan.plan_id,
        pipeline=plan.pipeline,
        incarnation=plan.incarnation,
        tables=receipts,
        delayed=plan.delayed,
        seconds=round(time.monotonic() - began, 3),
        capped=plan.to_manifest < plan.tail,
        warnings=tuple(_describe_idle(spark, plan)),
    )


def _ran(
    make: Callable[[], TableRun | SwapRun | MoveRun],
    patience: Patience,
    failure: Callable[[TidelineError], TableReceipt],
    doing: str,
) -> TableReceipt:
    try:
        made = make()
    except Exception as error:  # noqa: BLE001  every table has its receipt
        return failure(unexpected(error, doing))
    return made.run(patience)


def _describe_idle(spark: SparkSession, plan: Plan) -> Iterator[str]:
    """Describe the targets that nothing is merged into; a warning for each that could not be."""
    merged = {table.target for table in plan.tables}
    for planned in plan.descriptions:
        if planned.target in merged:
            continue
        try:
            describe_idle(spark, planned)
        except Exception as error:  # noqa: BLE001  the other tables continue
            why = unexpected(error, f"describing {planned.table}")
            yield f"{why.message}; the next merge does it again"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the spark-submit entry point; return the exit status."""
    parser = argparse.ArgumentParser(description="run one merge plan")
    parser.add_argument("--plan", required=True, help="the plan's address")
    parser.add_argument("--receipt", required=True, help="where the receipt is put")
    parser.add_argument(
        "--retries-max", type=int, default=RETRIES_MAX, help="retries of a table that lost a race"
    )
    parser.add_argument("--retry-s", type=float, default=0.0, help="patience with what may mend")
    parser.add_argument("--tables-at-once", type=int, help="side by side; default: Spark's cores")
    options = parser.parse_args(arguments)

    def work(spark: SparkSession) -> list[str]:
        plan = decode_plan(read_document(spark, options.plan), options.plan)
        receipt = run_plan(
            spark,
            plan,
            retries_max=options.retries_max,
            retry_s=options.retry_s,
            tables_at_once=options.tables_at_once,
        )
        (run_key, run), (_, document) = stored_documents(receipt, time.time_ns() // 1_000)
        write_document(spark, layout.object_url(plan.store_url, run_key), run)
        write_document(spark, options.receipt, document)
        for warning in receipt.warnings:
            say(warning)
        wrong = (Outcome.FAILED, Outcome.REFUSED)
        return [
            f"{table.table} {table.outcome.value}: {table.error}"
            for table in receipt.tables
            if table.outcome in wrong
        ]

    return run_job(work, name="tideline-merge", doing="running the plan")


if __name__ == "__main__":
    sys.exit(main())
