"""``tideline merge``: plans new changes and merges them in a Spark application of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, Receipt
from tideline.planner import pending_requests, plan_merge
from tideline.planner.pending import ask_for_pending
from tideline.planner.registration import Registration, register
from tideline.planner.runs import record_delayed, run_merge
from tideline.settings import Settings
from tideline_console.output import say
from tideline_console.spark import new_run_id, spark_session
from tideline_console.tables import moment, print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED = 1


def run(settings: Settings, tables: Sequence[str]) -> int:
    """Plan, merge, print a receipt per table; return 1 when a table failed, was refused, or has
    strayed from the chain."""
    plan_id = new_run_id()
    scope = list(tables) or None
    plan = plan_merge(settings, plan_id=plan_id, tables=scope)
    if plan.nothing_to_do:
        say(f"nothing to merge up to manifest {plan.to_manifest}")
        record_delayed(settings, plan)
        print_delayed(plan)
        print_registration(register(settings, scope))
        ask_for_pending(settings, pending_requests(settings, scope), say)
        return EXIT_FAILED if plan.strayed else 0
    say(f"plan {plan_id}: {len(plan.tables)} tables up to manifest {plan.to_manifest}")
    if plan.descriptions:
        say(f"{len(plan.descriptions)} tables get the comments and NOT NULL of the source")
    receipt = run_merge(settings, plan, lambda: _run_plan(settings, plan), say)
    _print_receipt(receipt)
    print_delayed(plan)
    ask_for_pending(settings, pending_requests(settings, scope), say)
    if plan.to_manifest < plan.tail:
        say("more waits than one plan takes: run `tideline merge` again")
    bad = [one for one in receipt.tables if one.outcome in (Outcome.REFUSED, Outcome.FAILED)]
    return EXIT_FAILED if bad or plan.strayed else 0


def _run_plan(settings: Settings, plan: Plan) -> Receipt:
    """Run the plan in a session of this process, and end the session."""
    with spark_session(settings, "merge") as session:
        return run_in(session, settings, plan)


def run_in(session: SparkSession, settings: Settings, plan: Plan) -> Receipt:
    """Run ``plan`` in an existing session, within the limits of ``[merge]``."""
    from tideline_spark.merge import run_plan  # heavy

    merge = settings.merge
    return run_plan(
        session,
        plan,
        retries_max=merge.retries_max,
        retry_s=merge.retry_s,
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
        if one.bytes_billed:
            say(f"{one.table}: billed for {one.bytes_billed / 1e6:,.1f} MB")
        for warning in one.warnings:
            say(f"{one.table}: {warning}")
        for change in one.external_changes:
            say(f"{one.table}: changed by someone else: {change}")


def print_registration(found: Registration) -> None:
    """Print which tables were registered in the catalog, and which could not be."""
    for table, name in sorted(found.made.items()):
        say(f"{table} is registered in the catalog as {name}")
    for line in found.lines():
        say(line)


def print_delayed(plan: Plan) -> None:
    """Print the tables that the plan delays, and why."""
    for table, reason in sorted(plan.delayed.items()):
        say(f"{table} is delayed: {reason}")
