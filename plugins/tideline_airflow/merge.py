"""The operator that merges: it makes a plan of what is new, runs it on Spark, and reads its
receipt.

It holds a slot of the pool `pools.SPARK_POOL`, so that one Spark job of Tideline runs at a time,
and plans once it has it: what other runs did while it waited is not planned again. Where the pool
is wider, or someone merges outside Airflow, another run may still be faster: then the job refuses
that table's part of the plan, and it is planned again and run in the same slot.

It may be killed anywhere and tried again: plans are named after the task (`identity`), so a new try
finds what the killed one planned, and a merge that is run twice changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tideline.contract import layout
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.receipt import DONE, Outcome, Receipt, TableReceipt, reread_requests
from tideline.settings import SourceSettings
from tideline_airflow.assets import MERGED, event_extra, table_asset
from tideline_airflow.by_others import keep_look, overtaken, since_last_run
from tideline_airflow.compat import AirflowException, AirflowFailException, AirflowSkipException
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.merger import run_by_merger
from tideline_airflow.receipts import bad, failure, format_receipts, newest, summary
from tideline_airflow.spark_job import SparkJobOperator, application, at_once

APPLICATION_VARIABLE = "TIDELINE_MERGE_APPLICATION"
ROUNDS_MAX = 10


class PlanJobOperator(SparkJobOperator):
    """Runs plans with spark-submit. The job's receipt decides, not its exit code."""

    template_fields = (*SparkJobOperator.template_fields, "config")

    def __init__(self, *, config: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self._lineage: list[tuple[SourceSettings, Plan, Receipt]] = []

    def run_plan(self, hook: TidelineHook, plan: Plan, context: Any) -> Receipt:
        """Run ``plan``, by the merger where one is there, else by a Spark job; return its
        receipt. A plan is run again only where its receipt says that a table failed: a table that
        another run was faster with is planned again instead.

        Updates an asset for each table that is merged; asks for pending rows. Without a receipt the
        task fails, and may be tried again.
        """
        from tideline.planner import read_receipt
        from tideline.planner.pending import ask_for_pending
        from tideline.planner.runs import registered, run_merge

        receipt = read_receipt(hook.settings, plan.plan_id)
        if receipt is None or any(one.outcome is Outcome.FAILED for one in receipt.tables):
            receipt = run_by_merger(hook, plan.plan_id, self.report) or run_merge(
                hook.settings,
                plan,
                lambda: self.submit_plan(hook, plan.plan_id, context),
                self.warn,
                stores=False,
            )
        else:  # An earlier try was killed before it came to the rest.
            receipt = registered(hook.settings, receipt)
        if receipt is None:
            raise AirflowException(f"the Spark job left no receipt of plan {plan.plan_id}")
        self._lineage.append((hook.settings.source, plan, receipt))
        self._warn_of(receipt)
        _report(receipt, context)
        ask_for_pending(hook.settings, reread_requests(receipt), self.warn)
        return receipt

    def get_openlineage_facets_on_complete(self, _: Any) -> Any:
        """Return the tables that this try read and wrote, an ``OperatorLineage``. Airflow's
        OpenLineage provider calls it, where it is installed, when the task has ended or failed."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        from tideline.openlineage.events import datasets

        found = [datasets(*one) for one in self._lineage]
        inputs = [one for read, _ in found for one in read]
        return OperatorLineage(inputs=inputs, outputs=[one for _, put in found for one in put])

    def report(self, text: str) -> None:
        """Log ``text``, which may hold others' names."""
        self.log.info("%s", log_line(text))

    def warn(self, text: str) -> None:
        """Log ``text``, which may hold others' names, as a warning."""
        self.log.warning("%s", log_line(text))

    def _warn_of(self, receipt: Receipt) -> None:
        """Log what went wrong besides the merge."""
        for text in receipt.warnings:
            self.warn(text)
        for one in receipt.tables:
            for text in one.warnings:
                self.warn(f"{one.table}: {text}")

    def register(self, hook: TidelineHook, tables: Sequence[str] | None) -> None:
        """Register tables that no plan was run for in the catalog; log what could not be."""
        from tideline.planner.registration import register

        for line in register(hook.settings, tables).lines():
            self.warn(line)

    def submit_plan(self, hook: TidelineHook, plan_id: str, context: Any) -> Receipt | None:
        """Run the stored plan of that id; return its receipt, None where the job left none."""
        from tideline.planner import read_receipt

        pipeline, merge = hook.settings.pipeline, hook.settings.merge
        plan_url = hook.url(layout.plan_key(pipeline, plan_id))
        receipt_url = hook.url(layout.receipt_key(pipeline, plan_id))
        limits = ["--retries-max", str(merge.retries_max), "--retry-s", str(merge.retry_s)]
        arguments = [*limits, *at_once(merge), "--plan", plan_url, "--receipt", receipt_url]
        program = self.application or application(APPLICATION_VARIABLE, "merge.py")
        began = time.monotonic()
        receipt = self.left_by(
            lambda: read_receipt(hook.settings, plan_id), program, arguments, hook.settings, context
        )
        whole = time.monotonic() - began
        if receipt is not None:
            self.log.info(
                "start and end of Spark took %.1f s, the merge %.1f s",
                max(0.0, whole - receipt.seconds),
                receipt.seconds,
            )
        return receipt


class MergeOperator(PlanJobOperator):
    """Merge what is new: of all tables, or of ``tables``, a list of names or what a `DumpOperator`
    returned (the tables that it dumped). Skipped where nothing is to be merged; of all tables, only
    where no one else has merged any since the task last succeeded: it updates their assets.

    Plans at most ``rounds_max`` times, while tables are refused or a plan did not reach the chain's
    end (plans are capped). Fails with the names of tables that could not be merged, and why; for
    good unless waiting may help. Where a target has applied another chain than the store has, it
    fails for good, once all else is done. Returns ``{"plans": [id], "held": {table: reason},
    "tables": {table: {"outcome", "applied_seq", "complete_through_us", "rows_read"}}}``.
    """

    template_fields = (*PlanJobOperator.template_fields, "tables")

    def __init__(self, *, tables: Any = None, rounds_max: int = ROUNDS_MAX, **kwargs: Any) -> None:
        kwargs.setdefault("name", "tideline_merge")
        kwargs.setdefault("outlets", [MERGED])
        super().__init__(**kwargs)
        self.tables = tables
        self.rounds_max = rounds_max

    @clear_errors
    def execute(self, context: Any) -> Any:
        hook, scope = TidelineHook(self.config), self._scope()
        done = self._rounds(hook, scope, context)
        others, look = dict(done.overtaken), None
        if scope is None:
            own = [*done.overtaken.values(), *_good(done.receipts.values())]
            look, found = since_last_run(hook, own, context)
            others |= found
        for one in others.values():
            self.report(f"{one.table} was merged by another run")
            _update_asset(done.plan.pipeline, one, context)
        if not done.receipts:
            self._see_to_rest(hook, done.plan, scope)
        tables = _results(done.receipts.values(), others, done.refused)
        if not tables and not done.plan.strayed:
            raise AirflowSkipException("nothing to merge: every table is up to date or delayed")
        self.log.info("%s", format_receipts(tables))
        if failed := bad(tables):
            raise failure(failed, len(tables), "are not merged")
        if done.plan.strayed:
            raise AirflowFailException(_strayed(done.plan))
        if look is not None:
            keep_look(look, context)
        held = dict(done.plan.delayed)
        return {"plans": list(done.receipts), "held": held, "tables": summary(tables)}

    def _rounds(self, hook: TidelineHook, scope: Sequence[str] | None, context: Any) -> _Done:
        """Plan and merge until nothing is left."""
        first = identity_of(context).name
        receipts: dict[str, Receipt] = {}
        refused: dict[str, TablePlan] = {}
        others: dict[str, TableReceipt] = {}
        for number in range(1, self.rounds_max + 1):
            plan = self._planned(hook, first if number == 1 else f"{first}/{number}", scope)
            others |= overtaken(refused, plan)
            if plan.nothing_to_do:
                # Other runs have done what was refused, or it is delayed now.
                return _Done(plan, receipts, others)
            receipt = receipts[plan.plan_id] = self.run_plan(hook, plan, context)
            names = {t.table for t in receipt.tables if t.outcome is Outcome.REFUSED}
            refused = {one.table: one for one in plan.tables if one.table in names}
            if names:
                text = log_line(", ".join(sorted(names)))
                self.log.info("planning again, since another run has changed %s", text)
            elif plan.to_manifest >= plan.tail:
                return _Done(plan, receipts, others)
        self.log.warning(
            "%d plans have run, and more is to be merged: the next run goes on", self.rounds_max
        )
        return _Done(plan, receipts, others, tuple(names))

    def _scope(self) -> list[str] | None:
        given = self.tables["tables"] if isinstance(self.tables, dict) else self.tables
        scope = None if given is None else list(given)
        if scope == []:
            raise AirflowSkipException("nothing to merge: no table was dumped")
        return scope

    def _planned(self, hook: TidelineHook, plan_id: str, scope: Sequence[str] | None) -> Plan:
        from tideline.planner import plan_merge

        began = time.monotonic()
        plan = plan_merge(hook.settings, plan_id=plan_id, tables=scope)
        self.log.info(
            "planned in %.1f s: %s, up to manifest %d",
            time.monotonic() - began,
            log_line(", ".join(table.table for table in plan.tables)) or "nothing",
            plan.to_manifest,
        )
        for table, reason in plan.delayed.items():
            self.log.warning("%s", log_line(f"{table} is delayed: {reason}"))
        return plan

    def _see_to_rest(self, hook: TidelineHook, plan: Plan, scope: Sequence[str] | None) -> None:
        """Do what is due where no plan was run: put on record what is delayed, ask for pending
        rows, register tables in the catalog."""
        from tideline.planner import pending_requests
        from tideline.planner.pending import ask_for_pending
        from tideline.planner.runs import record_delayed

        record_delayed(hook.settings, plan)
        self.register(hook, scope)
        ask_for_pending(hook.settings, pending_requests(hook.settings, scope), self.warn)


@dataclass(frozen=True, slots=True)
class _Done:
    """The outcome of a task's rounds: the last plan; the receipts, by plan; those of tables that
    other runs were faster with; the tables that are still refused."""

    plan: Plan
    receipts: Mapping[str, Receipt]
    overtaken: Mapping[str, TableReceipt]
    refused: Sequence[str] = ()


def _strayed(plan: Plan) -> str:
    """Return the tables whose targets have applied another chain, each with its remedy."""
    text = "; ".join(f"{table}: {plan.delayed[table]}" for table in plan.strayed)
    return f"{len(plan.strayed)} tables are delayed until they are rebuilt: {log_line(text)}"


def _results(
    receipts: Iterable[Receipt], others: Mapping[str, TableReceipt], refused: Sequence[str]
) -> list[TableReceipt]:
    """Return the last receipt of each table; ``others`` are those of tables that other runs have
    merged, ``refused`` the tables that are still refused. Sorted by name."""
    found = {
        one.table: one
        for one in newest(list(receipts))
        if one.outcome is not Outcome.REFUSED or one.table in refused
    }
    return [one for _, one in sorted({**others, **found}.items())]


def _report(receipt: Receipt, context: Any) -> None:
    for one in _good([receipt]):
        _update_asset(receipt.pipeline, one, context)


def _good(receipts: Iterable[Receipt]) -> list[TableReceipt]:
    """Return the receipts of tables that are where their plan was to bring them."""
    return [one for receipt in receipts for one in receipt.tables if one.outcome in DONE]


def _update_asset(pipeline: str, receipt: TableReceipt, context: Any) -> None:
    asset = table_asset(pipeline, receipt.table)
    context["outlet_events"][MERGED].add(asset, extra=event_extra(receipt))
