"""The operator that writes the documents of aggregates, by a separate Spark job.

It takes a slot of the same pool as merges: by default no merge runs at the same time.
"""

from __future__ import annotations

from typing import Any

from tideline.contract import layout
from tideline.contract.aggregate_tables import (
    AggregateOrder,
    AggregateOutcome,
    AggregateReceipt,
    AggregateResult,
    waiting_results,
)
from tideline_airflow.compat import AirflowException, AirflowSkipException
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.receipts import failure
from tideline_airflow.spark_job import SparkJobOperator, application

APPLICATION_VARIABLE = "TIDELINE_AGGREGATE_APPLICATION"


class AggregateOperator(SparkJobOperator):
    """Write the documents of all aggregates in the settings, or of ``names``, with spark-submit.
    Skipped where nothing has changed since, or all of them wait for merges.

    Returns ``{name: {"outcome", "manifest", "inserted", "updated", "deleted"}}``. The job's receipt
    decides: one aggregate's failure fails the task by name, after the others were written. A try
    that is killed is taken up by the next one, under the same order.
    """

    template_fields = (*SparkJobOperator.template_fields, "names", "config")

    def __init__(self, *, names: Any = None, config: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("name", "tideline_aggregate")
        super().__init__(**kwargs)
        self.names = names
        self.config = config

    @clear_errors
    def execute(self, context: Any) -> Any:
        from tideline.planner.aggregating import order_aggregates, read_aggregates

        hook = TidelineHook(self.config)
        order_id = identity_of(context).name
        names = list(self.names) if self.names else None
        order = order_aggregates(hook.settings, order_id=order_id, names=names)

        def read() -> AggregateReceipt | None:
            return read_aggregates(hook.settings, order_id)

        receipt = read() or _without_job(order)
        if receipt is None or _failed(receipt):
            program = self.application or application(APPLICATION_VARIABLE, "aggregate.py")
            arguments = _arguments(hook, order_id)
            receipt = self.left_by(read, program, arguments, hook.settings, context)
        if receipt is None:
            raise AirflowException(f"the Spark job left no receipt of order {order_id}")
        return self._result(receipt)

    def _result(self, receipt: AggregateReceipt) -> dict[str, Any]:
        for one in receipt.aggregates:
            why = one.reason or one.error
            text = f"{one.aggregate} {one.outcome.value}" + (f": {why}" if why else "")
            self.log.info("%s", log_line(text))
        if failed := _failed(receipt):
            # Under the same order another try looks at all of them.
            raise failure(failed, len(receipt.aggregates), "were not written", "aggregates")
        if all(one.outcome is not AggregateOutcome.WRITTEN for one in receipt.aggregates):
            waiting = [one for one in receipt.aggregates if one.reason is not None]
            text = "; ".join(f"{one.aggregate} waits: {one.reason}" for one in waiting)
            raise AirflowSkipException(log_line(text or "no document has changed"))
        return {
            one.aggregate: {
                "outcome": one.outcome.value,
                "manifest": one.manifest,
                "inserted": one.inserted,
                "updated": one.updated,
                "deleted": one.deleted,
            }
            for one in receipt.aggregates
        }


def _without_job(order: AggregateOrder) -> AggregateReceipt | None:
    """Return the receipt of an order for which there is nothing to run; None where there is."""
    if order.tables:
        return None
    return AggregateReceipt(order.order_id, order.pipeline, waiting_results(order))


def _failed(receipt: AggregateReceipt) -> list[AggregateResult]:
    return [one for one in receipt.aggregates if one.outcome is AggregateOutcome.FAILED]


def _arguments(hook: TidelineHook, order_id: str) -> list[str]:
    pipeline = hook.settings.pipeline
    order = hook.url(layout.aggregates_key(pipeline, order_id))
    receipt = hook.url(layout.aggregates_receipt_key(pipeline, order_id))
    return ["--order", order, "--receipt", receipt]
