"""The pool that Tideline's Spark jobs take a slot of: one at a time, unless its owner widens it.

A task in a pool that does not exist is never scheduled, so Airflow's own components make it when
they start. One that exists is left as it is: its slots are the operator's to set.
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

SPARK_POOL = "tideline_spark"
SLOTS = 1

log = logging.getLogger(__name__)


@hookimpl
def on_starting(component: Any) -> None:
    """Make the pool. Airflow calls this in components (scheduler, DAG processor, triggerer) and
    tasks.

    Only components have the database; they may start at once and race.
    """
    if type(component).__name__ != "Job":
        return
    from airflow.models.pool import Pool
    from sqlalchemy.exc import IntegrityError

    if Pool.get_pool(SPARK_POOL) is not None:
        return
    description = "Spark jobs of Tideline that may run at once"
    try:
        Pool.create_or_update_pool(SPARK_POOL, SLOTS, description, include_deferred=False)
    except IntegrityError:
        log.info("another component has just made the pool %s", SPARK_POOL)
    else:
        log.info("made the pool %s with %d slot", SPARK_POOL, SLOTS)
