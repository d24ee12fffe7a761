"""The operator that keeps warehouse tables small, by a separate Spark job.

It takes a slot of the same pool as merges: by default no merge runs at the same time.
"""

from __future__ import annotations

from typing import Any

from tideline.contract import layout
from tideline.contract.maintenance import MaintenanceOutcome, MaintenanceReceipt
from tideline_airflow.compat import AirflowException
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.receipts import failure
from tideline_airflow.spark_job import SparkJobOperator, application

APPLICATION_VARIABLE = "TIDELINE_MAINTAIN_APPLICATION"


class MaintainOperator(SparkJobOperator):
    """Maintain all tables, or ``tables``, with spark-submit.

    Returns ``{table: {"outcome", "reason", "files", "vacuumed"}}``. The job's receipt decides: one
    table's failure fails the task by name, after the others were done. A try that is killed is
    taken up by the next one, under the same order.
    """

    template_fields = (*SparkJobOperator.template_fields, "tables", "config")

    def __init__(self, *, tables: Any = None, config: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault("name", "tideline_maintain")
        super().__init__(**kwargs)
        self.tables = tables
        self.config = config

    @clear_errors
    def execute(self, context: Any) -> Any:
        from tideline.planner.maintaining import order_maintenance, read_maintenance

        hook = TidelineHook(self.config)
        name = identity_of(context).name
        tables = list(self.tables) if self.tables else None
        order = order_maintenance(hook.settings, maintenance_id=name, tables=tables)
        if not order.tables:
            return {}

        def read() -> MaintenanceReceipt | None:
            return read_maintenance(hook.settings, name)

        receipt = read()
        if receipt is None or any(
            one.outcome is MaintenanceOutcome.FAILED for one in receipt.tables
        ):
            program = self.application or application(APPLICATION_VARIABLE, "maintain.py")
            arguments = _arguments(hook, name)
            receipt = self.left_by(read, program, arguments, hook.settings, context)
        if receipt is None:
            raise AirflowException(f"the Spark job left no receipt of maintenance {name}")
        return self._result(receipt)

    def _result(self, receipt: MaintenanceReceipt) -> dict[str, Any]:
        for one in receipt.tables:
            text = f"{one.table} {one.outcome.value}: {one.reason or one.error}"
            self.log.info("%s", log_line(text))
        failed = [one for one in receipt.tables if one.outcome is MaintenanceOutcome.FAILED]
        if failed:
            # Under the same order another try looks at all tables.
            raise failure(failed, len(receipt.tables), "were not maintained")
        return {
            one.table: {
                "outcome": one.outcome.value,
                "reason": one.reason,
                "files": None if one.before is None else (one.after or one.before).files,
                "vacuumed": one.vacuumed,
            }
            for one in receipt.tables
        }


def _arguments(hook: TidelineHook, name: str) -> list[str]:
    pipeline = hook.settings.pipeline
    order = hook.url(layout.maintenance_key(pipeline, name))
    receipt = hook.url(layout.maintenance_receipt_key(pipeline, name))
    return ["--order", order, "--receipt", receipt]
