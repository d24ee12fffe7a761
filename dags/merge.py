"""`tideline_merge`: bring the warehouse's tables up to date, by schedule.

``TIDELINE_MERGE_SCHEDULE`` holds a cron expression or a preset such as ``@continuous``; empty:
only when triggered.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from tideline_airflow.merge import MergeOperator
from tideline_airflow.operators import PlanOperator, ReportOperator
from tideline_airflow.retries import NOT_BY_RETRYING

with DAG(
    "tideline_merge",
    schedule=os.environ.get("TIDELINE_MERGE_SCHEDULE", "*/5 * * * *") or None,
    catchup=False,
    max_active_runs=1,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=10),
        "retry_policy": NOT_BY_RETRYING,
    },
    doc_md=__doc__,
    tags=["tideline"],
):
    plan = PlanOperator(task_id="plan")
    merge = MergeOperator(task_id="merge", plan=plan.output)
    ReportOperator(task_id="report", plan_ids=merge.output)
