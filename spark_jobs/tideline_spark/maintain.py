"""Keeps warehouse tables small: rewrites files where it pays, and removes old ones.

``spark-submit maintain.py --order URL --receipt URL``. Exit status as for ``merge.py``. May be
killed at any point and run concurrently with merges: a rewrite is one commit that changes no data,
a race that a merge wins is retried, and a later run removes what a killed one left.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec
from pyspark.sql import SparkSession

from tideline.contract.document import with_checksum
from tideline.contract.errors import TidelineError
from tideline.contract.maintenance import (
    MaintainedTable,
    MaintenanceOrder,
    MaintenanceOutcome,
    MaintenanceReceipt,
    TableMaintenance,
    decide,
    decode_order,
)
from tideline.contract.modes import Mode
from tideline.contract.plan import STANDING_PROPERTY
from tideline.contract.target_properties import mode_of_properties
from tideline_spark.attempts import Patience, try_until
from tideline_spark.entry import run_job
from tideline_spark.failures import unexpected
from tideline_spark.files import read_document, write_document
from tideline_spark.formats.base import Target
from tideline_spark.formats.registry import open_target
from tideline_spark.formats.state import TargetVersion
from tideline_spark.plan_checks import check_owner
from tideline_spark.shared_files import files_seen_by_all

_NOT_OURS = "nothing was done to it; name another warehouse.url, or move it"
WEEK_US = 7 * 24 * 3600 * 1_000_000
"""Age up to which commits are left to the log, which keeps them for a month by default."""
_LOG = "a log of changes: its batches are written once, in order"


def maintain(spark: SparkSession, order: MaintenanceOrder) -> MaintenanceReceipt:
    """Maintain the tables of ``order`` one by one; a table's error is in its receipt. Raises as
    `files_seen_by_all` does."""
    with files_seen_by_all(spark, None, [table.target for table in order.tables]):
        return MaintenanceReceipt(
            maintenance_id=order.maintenance_id,
            pipeline=order.pipeline,
            tables=tuple(_maintained(spark, order, table) for table in order.tables),
        )


def _maintained(
    spark: SparkSession, order: MaintenanceOrder, table: MaintainedTable
) -> TableMaintenance:
    began = time.monotonic()
    done = TableMaintenance(table.table, MaintenanceOutcome.FAILED, "")
    try:
        done = _rewritten(spark, order, table)
        if done.outcome is not MaintenanceOutcome.FAILED and done.before is not None:
            files = open_target(spark.newSession(), table.target).files
            done = msgspec.structs.replace(
                done, vacuumed=files.vacuum(order.thresholds.vacuum_hours)
            )
    except Exception as error:  # noqa: BLE001  the other tables continue
        done = _failed(done, unexpected(error, f"maintaining {table.table}"))
    return msgspec.structs.replace(done, seconds=round(time.monotonic() - began, 3))


def _rewritten(
    spark: SparkSession, order: MaintenanceOrder, table: MaintainedTable
) -> TableMaintenance:
    """Measure the table's files, and rewrite them if it pays."""
    thresholds = order.thresholds
    target = open_target(spark.newSession(), table.target)
    files, seen = target.files, target.look()
    if seen.number < 0:
        return TableMaintenance(
            table.table, MaintenanceOutcome.LEFT, "nothing was merged into it yet"
        )
    properties = seen.properties
    owner = (order.pipeline, order.incarnation, table.table)
    check_owner(properties, owner, table.target, _NOT_OURS)
    remember(target, seen, order.incarnation, now_us=time.time_ns() // 1_000)
    before = files.measure(thresholds)
    if mode_of_properties(properties) is Mode.APPEND:
        # Combined files would lose the order of changes that each of them has.
        return TableMaintenance(table.table, MaintenanceOutcome.LEFT, _LOG, before=before)
    decision = decide(before, thresholds, named=order.named)
    if not decision.rewrite:
        return TableMaintenance(
            table.table, MaintenanceOutcome.LEFT, decision.reason, before=before
        )
    tried = try_until(
        lambda: files.rewrite(thresholds, decision),
        Patience(races_max=thresholds.retries_max),
        f"rewriting files of {table.table}",
    )
    done = TableMaintenance(
        table.table,
        MaintenanceOutcome.REWRITTEN,
        decision.reason,
        before=before,
        attempts=tried.attempts,
        conflicts=tried.conflicts,
    )
    if tried.error is not None:
        return _failed(done, tried.error)
    return msgspec.structs.replace(done, after=files.measure(thresholds))


def remember(table: Target, seen: TargetVersion, incarnation: str, *, now_us: int) -> None:
    """Repeat in the table's properties the position that our last commit of this ``incarnation``
    recorded, where that is old at ``now_us`` and they differ; nothing where the log has none.

    A format removes old commits from a table's log once there are newer ones. A table that is
    maintained but not merged into would then no longer record which manifest it has applied.
    """
    for commit in seen.commits():
        commit_metadata = commit.commit_metadata
        if commit_metadata is None or commit_metadata.incarnation != incarnation:
            continue
        text = commit_metadata.text()
        old = commit.at_us < now_us - WEEK_US
        if old and seen.properties.get(STANDING_PROPERTY) != text:
            table.set_property(STANDING_PROPERTY, text)
        return


def _failed(done: TableMaintenance, error: TidelineError) -> TableMaintenance:
    return msgspec.structs.replace(
        done,
        outcome=MaintenanceOutcome.FAILED,
        error=error.message,
        error_kind=type(error).__name__,
        hint=error.hint,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the spark-submit entry point; return the exit status."""
    parser = argparse.ArgumentParser(description="run one maintenance order")
    parser.add_argument("--order", required=True, help="the order's address")
    parser.add_argument("--receipt", required=True, help="where the receipt is put")
    options = parser.parse_args(arguments)

    def work(spark: SparkSession) -> list[str]:
        receipt = maintain(spark, decode_order(read_document(spark, options.order), options.order))
        write_document(spark, options.receipt, with_checksum(msgspec.json.encode(receipt)))
        failed = [table for table in receipt.tables if table.outcome is MaintenanceOutcome.FAILED]
        return [f"{table.table} failed: {table.error}" for table in failed]

    return run_job(work, name="tideline-maintain", doing="maintaining")


if __name__ == "__main__":
    sys.exit(main())
