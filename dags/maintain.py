"""`tideline_maintain`: keep the warehouse's tables small, once a day.

Rewrites small files, and files with many deleted rows, where what was measured says that it pays;
removes files that left a table's newest version longer ago than `maintain.vacuum_hours`.
``TIDELINE_MAINTAIN_SCHEDULE`` holds a cron expression; empty: only when triggered. No tables: all.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.sdk import DAG

from tideline_airflow import forms
from tideline_airflow.maintain import MaintainOperator
from tideline_airflow.retries import NOT_BY_RETRYING

with DAG(
    "tideline_maintain",
    schedule=os.environ.get("TIDELINE_MAINTAIN_SCHEDULE", "30 3 * * *") or None,
    catchup=False,
    max_active_runs=1,
    params={"tables": forms.tables([])},
    render_template_as_native_obj=True,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "retry_policy": NOT_BY_RETRYING,
    },
    doc_md=__doc__,
    tags=["tideline"],
):
    MaintainOperator(task_id="maintain", tables="{{ params.tables }}")
