"""`tideline_backfill`: read the rows of a time interval anew, for Airflow's own backfill.

Each run re-reads the rows of ``tables`` whose ``column`` lies in its data interval, and merges
them. Running an interval twice changes nothing, and nothing is ever deleted. Intervals are days,
or what the cron expression in ``TIDELINE_BACKFILL_SCHEDULE`` says. ``TIDELINE_BACKFILL_TABLES``
(separated by commas) and ``TIDELINE_BACKFILL_COLUMN`` are the params' defaults; with tables set
there, each interval is also read once by schedule when it ends, and without them such runs are
skipped.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from tideline.contract.request import TABLES_MAX
from tideline_airflow.merge import MergeOperator
from tideline_airflow.operators import DumpOperator, PlanOperator, ReportOperator
from tideline_airflow.retries import NOT_BY_RETRYING

PARAMS = {
    "tables": Param(
        [name for name in os.environ.get("TIDELINE_BACKFILL_TABLES", "").split(",") if name],
        type="array",
        items={"type": "string", "minLength": 3},
        maxItems=TABLES_MAX,
        title="Tables",
        description="One `schema.table` per line, each with the time column.",
    ),
    "column": Param(
        os.environ.get("TIDELINE_BACKFILL_COLUMN") or None,
        type=["null", "string"],
        title="Time column",
        description="Rows are read whose value here lies in the run's data interval (UTC).",
    ),
}

with DAG(
    "tideline_backfill",
    schedule=CronDataIntervalTimetable(
        os.environ.get("TIDELINE_BACKFILL_SCHEDULE", "0 0 * * *"), timezone="UTC"
    ),
    start_date=datetime(2000, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=2,
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
        time={
            "column": "{{ params.column }}",
            "from": "{{ data_interval_start.isoformat() }}",
            "to": "{{ data_interval_end.isoformat() }}",
        },
    )
    plan = PlanOperator(task_id="plan", tables=ask.output)
    merge = MergeOperator(task_id="merge", plan=plan.output)
    ReportOperator(task_id="report", plan_ids=merge.output)
