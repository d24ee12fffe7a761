"""The executors of a session's application, as Spark's own status has them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from tideline.cluster_spark import EXECUTORS_WAIT
from tideline.contract.errors import Unavailable
from tideline_spark.scala_items import scala_items

_ON_DEMAND = "spark.dynamicAllocation.enabled"
_PAUSE_S = 0.1


def executors(spark: SparkSession, *, active: bool = False) -> Mapping[str, str]:
    """Return the hosts of the executors, by id: of those that there ever were, or are now
    (``active``)."""
    found = {
        str(one.id()): str(one.hostPort()).rpartition(":")[0]
        for one in scala_items(_status(spark).executorList(active))
    }
    found.pop("driver", None)
    return found


def ended_tasks(spark: SparkSession, group: str, most: int) -> list[tuple[str, str]]:
    """Return the executor and Spark's status of each task of the jobs of ``group``, ``most`` of a
    stage."""
    tracker, status = spark.sparkContext.statusTracker(), _status(spark)
    return [
        (str(task.executorId()), str(task.status()))
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
        for task in scala_items(status.taskList(stage, 0, most))
    ]


def require_executor(spark: SparkSession, master: str) -> None:
    """Wait for the first executor: a job without one waits forever, and only Spark's log says why.

    Raises Unavailable after the time that the settings give (`EXECUTORS_WAIT`, seconds). Does
    nothing where executors are made on demand, with the first job, or no time is given.
    """
    wait_s = spark.conf.get(EXECUTORS_WAIT, "")
    if not wait_s or spark.sparkContext.getConf().get(_ON_DEMAND, "false") == "true":
        return
    end = time.monotonic() + float(wait_s)
    while not executors(spark, active=True):
        if time.monotonic() > end:
            raise Unavailable(
                f"no executor of {master} has joined in {float(wait_s):g} s",
                hint="the cluster has no free core, or no worker with the memory of an executor"
                " (merge.cores_max, executor_cores, executor_memory), or executors cannot reach the"
                " driver (merge.driver_host); nothing was written, and the next run goes on",
            )
        time.sleep(_PAUSE_S)


def _status(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.sc().statusStore()
