"""Runs verification plans: compares verification parts with the warehouse and reports differences.

``spark-submit verify.py --plan URL --result URL`` runs one plan; `run_verification` serves a
long-lived session. The warehouse is unchanged, so a run may be killed, repeated or raced.
Exit status: 0 when every table is equal, 1 when one is not (the result says why), 2 without one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from tideline.contract.document import with_checksum
from tideline.contract.verification import (
    TableComparison,
    TableResult,
    Verification,
    VerificationOutcome,
    VerifyPlan,
    decode_verify_plan,
    encode_verification,
)
from tideline_spark.entry import run_job
from tideline_spark.files import read_document, write_document
from tideline_spark.session import side_by_side
from tideline_spark.shared_files import files_seen_by_all
from tideline_spark.verification.comparison_run import ComparisonRun


def run_verification(
    spark: SparkSession, plan: VerifyPlan, *, tables_at_once: int | None = None
) -> Verification:
    """Compare every table of ``plan``; a table's result has the reason if that failed.

    ``tables_at_once`` are compared in parallel; None: one for each core. Raises as
    `files_seen_by_all` does.
    """

    def run(table: TableComparison) -> TableResult:
        return ComparisonRun(spark, plan, table).run()

    with (
        files_seen_by_all(spark, plan.store_url, [table.target for table in plan.tables]),
        ThreadPoolExecutor(max_workers=side_by_side(spark, tables_at_once)) as pool,
    ):
        results = list(pool.map(run, plan.tables))
    results += [
        TableResult(table, VerificationOutcome.NOT_COMPARED, reason=reason)
        for table, reason in sorted(plan.delayed.items())
    ]
    return Verification(
        plan.verify_id, plan.pipeline, plan.incarnation, plan.request_id, tuple(results)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the spark-submit entry point; return the exit status."""
    parser = argparse.ArgumentParser(description="run one verification plan")
    parser.add_argument("--plan", required=True, help="the plan's address")
    parser.add_argument("--result", required=True, help="where the result is put")
    parser.add_argument("--tables-at-once", type=int, help="side by side; default: Spark's cores")
    options = parser.parse_args(arguments)

    def work(spark: SparkSession) -> list[str]:
        plan = decode_verify_plan(read_document(spark, options.plan), options.plan)
        result = run_verification(spark, plan, tables_at_once=options.tables_at_once)
        write_document(spark, options.result, with_checksum(encode_verification(result)))
        return [
            _described(table)
            for table in result.tables
            if table.outcome is not VerificationOutcome.EQUAL
        ]

    return run_job(work, name="tideline-verify", doing="verifying")


def _described(table: TableResult) -> str:
    reason = table.reason or f"{table.differences} keys differ, {table.changing} changed meanwhile"
    return f"{table.table} {table.outcome.value}: {reason}"


if __name__ == "__main__":
    sys.exit(main())
