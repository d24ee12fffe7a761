"""`tideline_rebuild`: build a table anew from the chain, beside the live one, and swap them.

Switches the mode that a table is kept in, heals one that a dump cannot heal, and leads one past a
change, or a new generation, that it is held before. The live table is read meanwhile, and merged
between the steps. Only when triggered.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from tideline_airflow.rebuild import RebuildOperator
from tideline_airflow.retries import NOT_BY_RETRYING

MODES = ["", "current", "soft_deletes", "history", "append"]

with DAG(
    "tideline_rebuild",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={
        "table": Param(type="string", minLength=3, title="Table", description="`schema.table`"),
        "mode": Param(
            "", type="string", enum=MODES, title="Mode", description="Empty: as the settings say."
        ),
        "since_dump": Param(
            False,
            type="boolean",
            title="Since the latest dump",
            description="Begin there also where the mode keeps what was before it.",
        ),
        "accept_differences": Param(
            False,
            type="boolean",
            title="Accept differences",
            description="Swap although the live table holds something else.",
        ),
        "anew": Param(
            False,
            type="boolean",
            title="Anew",
            description="Give up a rebuild of the table that is under way.",
        ),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "retry_policy": NOT_BY_RETRYING,
    },
    doc_md=__doc__,
    tags=["tideline"],
):
    RebuildOperator(
        task_id="rebuild",
        table="{{ params.table }}",
        mode="{{ params.mode }}",
        since_dump="{{ params.since_dump }}",
        accept_differences="{{ params.accept_differences }}",
        anew="{{ params.anew }}",
    )
