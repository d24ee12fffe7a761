"""`tideline_repair`: read rows anew from the source and put them into the warehouse.

Whole tables, or the rows of given keys of one table. The source is neither locked nor paused. A
whole table's repair also removes rows that the source does not have; repairing keys removes those
of the keys that are gone.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from tideline.contract.request import CHUNK_ROWS_MAX, DELAY_MS_MAX, KEYS_MAX, TABLES_MAX
from tideline_airflow.merge import MergeOperator
from tideline_airflow.operators import DumpOperator, PlanOperator, ReportOperator
from tideline_airflow.retries import NOT_BY_RETRYING

PARAMS = {
    "tables": Param(
        type="array",
        items={"type": "string", "minLength": 3},
        minItems=1,
        maxItems=TABLES_MAX,
        title="Tables",
        description="One `schema.table` per line; shell patterns work (`public.*`).",
    ),
    "keys": Param(
        None,
        type=["null", "array"],
        items={
            "anyOf": [
                {"type": ["string", "integer"]},
                {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
            ]
        },
        maxItems=KEYS_MAX,
        title="Keys",
        description='Only rows with these keys, of one table: `["17", "18"]`; a key of several'
        ' columns is a list: `[["17", "2"]]`. Empty: whole tables.',
    ),
    "chunk_rows": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=CHUNK_ROWS_MAX,
        title="Rows per chunk",
        description="How many rows one query reads. Empty: the worker's setting.",
    ),
    "delay_ms": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        maximum=DELAY_MS_MAX,
        title="Pause between chunks (ms)",
        description="Spares a busy source. Empty: the worker's setting.",
    ),
}

with DAG(
    "tideline_repair",
    schedule=None,
    params=PARAMS,
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
        keys="{{ params['keys'] }}",
        chunk_rows="{{ params.chunk_rows }}",
        delay_ms="{{ params.delay_ms }}",
    )
    plan = PlanOperator(task_id="plan", tables=ask.output)
    merge = MergeOperator(task_id="merge", plan=plan.output)
    ReportOperator(task_id="report", plan_ids=merge.output)
