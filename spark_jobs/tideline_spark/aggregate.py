"""Writes the documents of aggregates to tables of the warehouse.

``spark-submit aggregate.py --order URL --receipt URL``. Exit status as for ``merge.py``. May be
killed at any point, run twice, and run beside merges: each table is brought to the order's place in
one commit, which carries the number of the place's manifest.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace
from pyspark.sql import SparkSession

from tideline.contract.aggregate_tables import (
    AggregateOrder,
    AggregateOutcome,
    AggregateReceipt,
    AggregateResult,
    AggregateTable,
    decode_aggregate_order,
    waiting_results,
)
from tideline.contract.document import with_checksum
from tideline_spark.aggregate_run import AggregateRun
from tideline_spark.attempts import Patience
from tideline_spark.entry import run_job, say
from tideline_spark.failures import unexpected
from tideline_spark.files import read_document, write_document
from tideline_spark.shared_files import files_seen_by_all

RETRIES_MAX = 8


def write_aggregates(
    spark: SparkSession,
    order: AggregateOrder,
    *,
    retries_max: int = RETRIES_MAX,
    on_point: Callable[[str], None] = lambda point: None,
) -> AggregateReceipt:
    """Bring the tables of ``order`` to its places, one by one; an error of one is in its result.

    A lost race is retried up to ``retries_max`` times. ``on_point`` is called as `AggregateRun`
    does. Raises as `files_seen_by_all` does.
    """
    patience = Patience(races_max=retries_max)
    targets = [table.target for table in order.tables]
    targets += [one.target for table in order.tables for one in table.members.values()]
    with files_seen_by_all(spark, None, targets):
        results = [_result(spark, order, table, patience, on_point) for table in order.tables]
    return AggregateReceipt(
        order_id=order.order_id,
        pipeline=order.pipeline,
        aggregates=(*results, *waiting_results(order)),
    )


def _result(
    spark: SparkSession,
    order: AggregateOrder,
    table: AggregateTable,
    patience: Patience,
    on_point: Callable[[str], None],
) -> AggregateResult:
    began, name = time.monotonic(), table.aggregate.name
    try:
        found = AggregateRun(spark, order, table, on_point).run(patience)
    except Exception as failure:  # noqa: BLE001  the other tables continue
        error = unexpected(failure, f"writing the documents of {name}")
        found = AggregateResult(
            name,
            AggregateOutcome.FAILED,
            table.target,
            error=error.message,
            error_kind=type(error).__name__,
            hint=error.hint,
        )
    return replace(found, seconds=round(time.monotonic() - began, 3))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the spark-submit entry point; return the exit status."""
    parser = argparse.ArgumentParser(description="write the documents of aggregates")
    parser.add_argument("--order", required=True, help="the order's address")
    parser.add_argument("--receipt", required=True, help="where the receipt is put")
    options = parser.parse_args(arguments)

    def work(spark: SparkSession) -> list[str]:
        order = decode_aggregate_order(read_document(spark, options.order), options.order)
        receipt = write_aggregates(spark, order)
        write_document(spark, options.receipt, with_checksum(msgspec.json.encode(receipt)))
        for one in receipt.aggregates:
            if one.reason is not None:
                say(f"{one.aggregate} waits: {one.reason}")
        failed = [one for one in receipt.aggregates if one.outcome is AggregateOutcome.FAILED]
        return [f"{one.aggregate} failed: {one.error}" for one in failed]

    return run_job(work, name="tideline-aggregate", doing="writing documents")


if __name__ == "__main__":
    sys.exit(main())
