"""``tideline merge``: plan what is new and run it in a Spark application of this process."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tideline.contract import layout
from tideline.contract.document import with_checksum
from tideline.contract.errors import TidelineError
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt, encode_receipt, run_of
from tideline.contract.timeliness import MergeRun
from tideline.openlineage import run_with_lineage
from tideline.planner import pending_requests, plan_merge
from tideline.planner.runs import record_run
from tideline.settings import Settings
from tideline.store.objects import open_store
from tideline_console.output import say
from tideline_console.spark import spark_session
from tideline_console.tables import moment, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED = 1


def run(settings: Settings, tables: Sequence[str]) -> int:
    """Plan, merge, print a receipt per table; 1 when a table failed, was refused, or has
    strayed from the chain."""
    plan_id = f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    plan = plan_merge(settings, plan_id=plan_id, tables=list(tables) or None)
    if plan.nothing_to_do:
        say(f"nothing to merge up to manifest {plan.b}")
        if plan.held:
            record_run(settings, MergeRun(plan_id, time.time_ns() // 1_000, held=plan.held))
        print_held(plan)
        _reread_pending(settings, tables)
        return EXIT_FAILED if plan.strayed else 0
    say(f"plan {plan_id}: {len(plan.tables)} tables up to manifest {plan.b}")
    if plan.descriptions:
        say(f"{len(plan.descriptions)} tables get the comments and NOT NULL of the source")
    receipt = run_with_lineage(settings, plan, lambda: _run_plan(settings, plan), say)
    store_receipt(settings, receipt)
    _print_receipt(receipt)
    print_held(plan)
    _reread_pending(settings, tables)
    if plan.b < plan.tail:
        say("more waits than one plan takes: run `tideline merge` again")
    bad = [one for one in receipt.tables if one.outcome in (Outcome.REFUSED, Outcome.FAILED)]
    return EXIT_FAILED if bad or plan.strayed else 0


def store_receipt(settings: Settings, receipt: Receipt) -> None:
    """Put the receipt of a run that has just ended next to its plan, and the run on record."""
    store = open_store(settings.store)
    record_run(settings, run_of(receipt, time.time_ns() // 1_000), store)
    key = layout.receipt_key(settings.pipeline, receipt.plan_id)
    store.put(key, with_checksum(encode_receipt(receipt)))


def _run_plan(settings: Settings, plan: Plan) -> Receipt:
    """Run it in a session of this process; the session ends with it."""
    with spark_session(settings, "merge") as session:
        return run_in(session, settings, plan, retry_s=settings.merge.retry_s)


def run_in(session: SparkSession, settings: Settings, plan: Plan, retry_s: float = 0.0) -> Receipt:
    """Run ``plan`` in a session that is there, within the limits of ``[merge]``."""
    from tideline_spark.merge import run_plan  # heavy

    merge = settings.merge
    return run_plan(
        session,
        plan,
        retries_max=merge.retries_max,
        retry_s=retry_s,
        tables_at_once=merge.tables_at_once,
    )


def _print_receipt(receipt: Receipt) -> None:
    print_table(
        ("table", "outcome", "manifest", "seq", "complete through", "read", "inserted", "updated",
         "deleted", "pending", "seconds"),
        (
            (
                one.table,
                one.outcome.value,
                one.applied_manifest,
                one.applied_seq,
                moment(one.complete_through_us),
                one.rows_read,
                one.inserted,
                one.updated,
                one.deleted,
                one.pending,
                f"{one.seconds:.1f}",
            )
            for one in receipt.tables
        ),
    )  # fmt: skip
    for warning in receipt.warnings:
        say(warning)
    for one in receipt.tables:
        if one.error is not None:
            say(f"{one.table}: {one.outcome.value}: {one.error}")
            if one.hint is not None:
                say(f"  hint: {one.hint}")
        for warning in one.warnings:
            say(f"{one.table}: {warning}")
        for change in one.foreign_changes:
            say(f"{one.table}: changed by somebody else: {change}")


def _reread_pending(settings: Settings, tables: Sequence[str]) -> None:
    """Ask for what the log did not carry; the next merge brings it in. What is merged is merged:
    nobody to ask is no failure of it, and the next merge asks again."""
    pending = pending_requests(settings, list(tables) or None)
    if not pending:
        return
    from tideline.control import Asker  # heavy: most merges have nothing to ask

    for request in pending:
        try:
            with closing(Asker(settings.control, settings.pipeline)) as asker:
                asker.ask(request)
            done = "the worker is asked to read them again"
        except TidelineError as error:
            done = f"the worker could not be asked to read them again: {error}"
        say(f"{request.tables[0]}: rows lack values that the log did not carry; {done}")


def print_held(plan: Plan) -> None:
    """Say which tables the plan holds back, and why."""
    for table, reason in sorted(plan.held.items()):
        say(f"{table} is held: {reason}")
