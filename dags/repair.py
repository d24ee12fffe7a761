"""`tideline_repair`: read rows anew from the source and put them into the warehouse.

Whole tables; or, of one table, given keys, a range of keys, or both; or the rows of a range of
time. The source is neither locked nor paused. A whole table's repair also removes rows that the
source does not have; repairing keys removes those of the keys that are gone; a range by itself
removes nothing. `tideline_steer` pauses, slows down or cancels a repair that runs.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from tideline_airflow import forms
from tideline_airflow.merge import MergeOperator
from tideline_airflow.operators import DumpOperator, PlanOperator, ReportOperator
from tideline_airflow.retries import NOT_BY_RETRYING

with DAG(
    "tideline_repair",
    schedule=None,
    params={
        "tables": forms.tables(),
        "keys": forms.keys("Beside a range: read after it. Empty: whole tables, or the range."),
        **forms.KEY_RANGE,
        **forms.TIME_RANGE,
        **forms.PACE,
    },
    render_template_as_native_obj=True,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=10),
        "retry_policy": NOT_BY_RETRYING,
    },
    doc_md=__doc__,
    tags=["tideline"],
):
    ask = DumpOperator(
        task_id="ask",
        tables="{{ params.tables }}",
        keys=forms.param("keys"),
        key_range=forms.key_range,
        time=forms.time_range,
        priority="{{ params.priority }}",
        chunk_rows="{{ params.chunk_rows }}",
        delay_ms="{{ params.delay_ms }}",
        cancel_with_task="{{ params.cancel_with_task }}",
    )
    plan = PlanOperator(task_id="plan", tables=ask.output)
    merge = MergeOperator(task_id="merge", plan=plan.output)
    ReportOperator(task_id="report", plan_ids=merge.output)
