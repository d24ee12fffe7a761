"""`tideline_verify`: prove warehouse tables equal to their source, or name what differs.

The worker reads the tables in chunks between marks, Spark compares them with the warehouse column
by column at that very position; nothing is paused. What changed meanwhile is read and compared a
second time. The task `report` fails with the names of tables that differ; the DAG `tideline_repair`
mends them, or `tideline verify --repair`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from tideline_airflow import forms
from tideline_airflow.retries import NOT_BY_RETRYING
from tideline_airflow.verify import (
    CompareOperator,
    MovingOperator,
    ProofOperator,
    ReadOperator,
    moving_keys,
)

PACE = {name: f"{{{{ params.{name} }}}}" for name in ("priority", "chunk_rows", "delay_ms")}

with DAG(
    "tideline_verify",
    schedule=None,
    params={
        "tables": forms.tables(),
        **forms.KEY_RANGE,
        "sample_percent": forms.SAMPLE,
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
    read = ReadOperator(
        task_id="read",
        tables="{{ params.tables }}",
        key_range=forms.key_range,
        sample_percent="{{ params.sample_percent }}",
        cancel_with_task="{{ params.cancel_with_task }}",
        **PACE,
    )
    compare = CompareOperator(task_id="compare", reads=read.output)
    moving = MovingOperator(task_id="moving", compared=compare.output)
    read_again = ReadOperator.partial(
        task_id="read_again", keys=moving_keys, cancel_with_task="{{ params.cancel_with_task }}"
    ).expand(tables=moving.output)
    compare_again = CompareOperator(
        task_id="compare_again", reads=read_again.output, first=compare.output
    )
    report = ProofOperator(task_id="report", compared=compare.output, trigger_rule="none_failed")
    compare_again >> report
