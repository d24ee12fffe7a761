"""The operator that merges: the Spark provider's, started for a plan and answered by a receipt.

It holds a slot of the pool `pools.SPARK_POOL`, so that one Spark job of Tideline runs at a time.
A plan may have grown old while it waited for the slot: another run has moved a table since. Such
a table's part of the plan is refused by the job, planned anew and run, in the same slot.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowException

from tideline.contract.receipt import Outcome, Receipt, reread_requests
from tideline.openlineage import Told
from tideline_airflow.assets import MERGED, event_extra, table_asset
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.spark_job import SparkJobOperator, application, at_once

APPLICATION_VARIABLE = "TIDELINE_MERGE_APPLICATION"
ROUNDS_MAX = 10


class MergeOperator(SparkJobOperator):
    """Run what `PlanOperator` planned, with spark-submit; returns the ids of the plans it ran.

    Plans further ones, at most ``rounds_max`` in all, while tables are refused or a plan did not
    reach the chain's end (plans are capped). The job's receipt decides, not its exit code: without
    one the task fails and may be tried again; tables that the receipt calls failed are left to the
    report. A plan whose receipt says that all is applied is not run again. Updates an asset for
    each table it merged.
    """

    template_fields = (*SparkJobOperator.template_fields, "plan", "config")

    def __init__(
        self,
        *,
        plan: Any,
        config: str | None = None,
        rounds_max: int = ROUNDS_MAX,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "tideline_merge")
        kwargs.setdefault("outlets", [MERGED])
        super().__init__(**kwargs)
        self.plan = plan
        self.config = config
        self.rounds_max = rounds_max

    def execute(self, context: Any) -> Any:
        hook = TidelineHook(self.config)
        first, scope = self.plan["plan_id"], self.plan["scope"]
        plan_id, behind, done = first, self.plan["behind"], []
        while True:
            receipt = self._run(hook, plan_id, context)
            done.append(plan_id)
            refused = [t.table for t in receipt.tables if t.outcome is Outcome.REFUSED]
            if not (refused or behind):
                return done
            if len(done) == self.rounds_max:
                self.log.warning("more is to be merged after %d plans", len(done))
                return done
            if refused:
                self.log.info("planning anew, others have moved on: %s", ", ".join(refused))
            plan_id = f"{first}/{len(done) + 1}"
            plan = hook.plan(plan_id, scope)
            behind = plan.b < plan.tail
            if not plan.tables:
                return done

    def _run(self, hook: TidelineHook, plan_id: str, context: Any) -> Receipt:
        receipt = hook.receipt(plan_id)
        if receipt is None or not _complete(receipt):
            receipt = self._told_run(hook, plan_id, context)
        if receipt is None:
            raise AirflowException(f"the Spark job left no receipt of plan {plan_id}")
        _announce(receipt, context)
        hook.reread(reread_requests(receipt))
        return receipt

    def _told_run(self, hook: TidelineHook, plan_id: str, context: Any) -> Receipt | None:
        """Run the plan, and tell whoever keeps track of lineage; its receipt, if it left one."""
        lineage = Told(hook.settings)
        plan = hook.plan(plan_id) if hook.settings.openlineage.url else None
        if plan is not None:
            lineage.began(plan)
        try:
            self._submit(hook, plan_id, context)
        finally:
            receipt = hook.receipt(plan_id)
            lost = None if plan is None else lineage.done(plan, receipt)
            if lost is not None:
                self.log.warning("%s", lost)
        return receipt

    def _submit(self, hook: TidelineHook, plan_id: str, context: Any) -> None:
        urls = hook.urls(plan_id)
        merge = hook.settings.merge
        limits = ["--retry-s", str(merge.retry_s), *at_once(merge)]
        arguments = [*limits, "--plan", urls.plan, "--receipt", urls.receipt]
        program = self.application or application(APPLICATION_VARIABLE, "merge.py")
        try:
            self.submit(program, arguments, merge, context)
        except AirflowException:
            if hook.receipt(plan_id) is None:
                raise
            self.log.exception("spark-submit failed; the receipt of plan %s tells more", plan_id)


def _complete(receipt: Receipt) -> bool:
    return all(t.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED) for t in receipt.tables)


def _announce(receipt: Receipt, context: Any) -> None:
    for one in receipt.tables:
        if one.outcome in (Outcome.APPLIED, Outcome.ALREADY_APPLIED):
            asset = table_asset(receipt.pipeline, one.table)
            context["outlet_events"][MERGED].add(asset, extra=event_extra(one))
