"""`tideline_steer`: pause, resume or cancel dumps while they run, or change their pace.

Of the requests whose ids are given, or of all. A dump that is paused stays paused until it is
resumed, whatever restarts. The tasks that wait for it go on waiting; one whose request is cancelled
fails and says so.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from tideline_airflow import forms
from tideline_airflow.retries import NOT_BY_RETRYING
from tideline_airflow.steer import SteerOperator

with DAG(
    "tideline_steer",
    schedule=None,
    params=forms.STEER,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=10),
        "retry_policy": NOT_BY_RETRYING,
    },
    doc_md=__doc__,
    tags=["tideline"],
):
    SteerOperator(task_id="steer")
