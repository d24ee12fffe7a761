"""`tideline_backfill`: read the rows of a time interval anew, for Airflow's own backfill.

Each run re-reads the rows of ``tables`` whose ``column`` lies in its data interval, and merges
them. Running an interval twice changes nothing; nothing is deleted but ``keys`` that are given and
that the source lacks. Intervals are days,
or what the cron expression in ``TIDELINE_BACKFILL_SCHEDULE`` says. ``TIDELINE_BACKFILL_TABLES``
(separated by commas) and ``TIDELINE_BACKFILL_COLUMN`` are the params' defaults; with tables set
there, each interval is also read once by schedule when it ends, and without them such runs are
skipped.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from tideline_airflow import forms
from tideline_airflow.merge import MergeOperator
from tideline_airflow.operators import DumpOperator, PlanOperator, ReportOperator
from tideline_airflow.retries import NOT_BY_RETRYING

NAMED = [name for name in os.environ.get("TIDELINE_BACKFILL_TABLES", "").split(",") if name]
COLUMN = Param(
    os.environ.get("TIDELINE_BACKFILL_COLUMN") or None,
    type=["null", "string"],
    title="Time column",
    description="Rows are read whose value here lies in the run's data interval (UTC).",
)


def interval(context: Any) -> dict[str, Any]:
    """The run's data interval, of the column that it names."""
    begin, end = context["data_interval_start"], context["data_interval_end"]
    column = context["params"]["column"]
    return {"column": column, "from": begin.isoformat(), "to": end.isoformat()}


with DAG(
    "tideline_backfill",
    schedule=CronDataIntervalTimetable(
        os.environ.get("TIDELINE_BACKFILL_SCHEDULE", "0 0 * * *"), timezone="UTC"
    ),
    start_date=datetime(2000, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=2,
    params={
        "tables": forms.tables(NAMED),
        "column": COLUMN,
        "keys": forms.keys("Read after the interval; those that the source lacks are deleted."),
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
        time=interval,
        priority="{{ params.priority }}",
        chunk_rows="{{ params.chunk_rows }}",
        delay_ms="{{ params.delay_ms }}",
        cancel_with_task="{{ params.cancel_with_task }}",
    )
    plan = PlanOperator(task_id="plan", tables=ask.output)
    merge = MergeOperator(task_id="merge", plan=plan.output)
    ReportOperator(task_id="report", plan_ids=merge.output)
