"""Merges as many changes as a table has rows on a cluster of one worker and of two, a core each.

Per step of the merge, in Delta's words or by our line that starts it: what executors read in a
second of a core, and what goes through the shuffle. Docs derive from these what larger merges take.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import clocks, cpu_s, since
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, on_cluster, rig, run_until_idle
from devtools.benchmarks.spark_steps import jobs_so_far, step_of
from devtools.services.spark_cluster import SparkCluster
from tideline.planner import plan_merge
from tideline.settings import make_settings
from tideline_spark.scala_items import scala_items

NAME = "cluster"
WORKERS = (1, 2)
_MEMORY = "3g"
_BATCH = 100_000
_LEAST = 0.01
"""The share of executors' CPU below which a step is not shown."""


@dataclass
class _StepCost:
    """Sums over the stages of a step: seconds, rows, bytes."""

    cpu_s: float = 0.0
    run_s: float = 0.0
    rows: int = 0
    shuffled: int = 0
    spilled: int = 0


@dataclass
class _MergeCost:
    """CPU seconds of the driver, while it merged, and of the executors; wall seconds; rows written
    to the table."""

    driver_s: float
    executors_s: float
    wall_s: float
    steps: dict[str, _StepCost]
    written: int

    @property
    def cpu_s(self) -> float:
        return self.driver_s + self.executors_s


def run(rows: int) -> Iterator[Result]:
    """Measure ``rows`` changes, four updates of keys from all over the table for each insert, into
    ``rows`` rows; and the merge of the dump before, which makes the table."""
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, rows)
        run_until_idle(server.settings(initial="dump", chunk_rows=50_000), server)
        yield from _lines(f"a dump of {rows} rows", rows, _on_clusters(server, "dump"))
        _change(server.cursor, rows)
        run_until_idle(server.settings(initial="dump", chunk_rows=50_000), server)
        yield from _lines(f"{rows} changes into {rows} rows", rows, _on_clusters(server, "changes"))
        shutil.rmtree(server.folder / "warehouse")


def _change(cursor: Any, rows: int) -> None:
    """Update four fifths of the rows, and insert a fifth as many, in transactions of many."""
    for first in range(1, rows + 1, _BATCH):
        cursor.execute(
            "UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval '1 ms'"
            " WHERE id >= %s AND id < %s AND id <= %s AND id %% 5 > 0",
            (first, first + _BATCH, rows),
        )
    for first in range(rows + 1, rows + rows // 5 + 1, _BATCH):
        last = min(first + _BATCH - 1, rows + rows // 5)
        cursor.execute(
            f"INSERT INTO orders {orders.ROW} FROM generate_series({first:d}, {last:d}) g"
        )


def _on_clusters(server: CaptureRig, name: str) -> list[_MergeCost]:
    """Merge what waits on each cluster, always into the same warehouse; keep the last one's."""
    found = []
    warehouse, before = server.folder / "warehouse", server.folder / f"before-{name}"
    if warehouse.exists():
        shutil.copytree(warehouse, before)
    for workers in WORKERS:
        shutil.rmtree(warehouse, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, warehouse)
        folder = server.folder / f"cluster-{name}-{workers}"
        folder.mkdir()
        with SparkCluster(folder, workers=workers, memory=_MEMORY) as cluster:
            found.append(_measured(server, cluster, f"{name}-{workers}"))
    shutil.rmtree(before, ignore_errors=True)
    return found


def _measured(server: CaptureRig, cluster: SparkCluster, plan_id: str) -> _MergeCost:
    """Merge in a process of its own: the driver of the second cluster is no warmer than the
    first's."""
    values = server.settings().model_dump(mode="json", exclude_unset=True)
    values["source"]["url"], values["control"]["url"] = server.dsn, server.valkey.url()
    values["merge"] = on_cluster(cluster, _MEMORY)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_merged, values, plan_id).result()


def _merged(values: Mapping[str, Any], plan_id: str) -> _MergeCost:
    """Plan and merge; called in the process of the driver."""
    from tideline.cluster_spark import cluster_settings
    from tideline.java import java_home
    from tideline.warehouse.job_jars import job_jars
    from tideline_spark.merge import run_plan
    from tideline_spark.session import make_session

    settings = make_settings(values)
    os.environ["JAVA_HOME"] = str(java_home())
    spark = make_session(
        master=settings.merge.master,
        driver_memory="2g",
        jars=job_jars(settings),
        app_name="cluster",
        others=cluster_settings(settings.merge, settings.merge.master),
    )
    try:
        begun = clocks()
        (receipt,) = run_plan(spark, plan_merge(settings, plan_id=plan_id)).tables
        driver_s, wall_s = since(begun)
        if receipt.error is not None:
            raise AssertionError(f"the merge failed: {receipt.error}")
        return _MergeCost(
            driver_s,
            _executors_s(spark),
            wall_s,
            _steps(spark),
            receipt.inserted + receipt.updated,
        )
    finally:
        spark.stop()


def _executors_s(spark: Any) -> float:
    """Return the CPU seconds of the executors' processes, their start included."""
    application = str(spark.sparkContext.applicationId)
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.name() == "java" and application in one.cmdline():
                found.append(one)
    return cpu_s(found)


def _steps(spark: Any) -> dict[str, _StepCost]:
    """Sum Spark's own counts of the stages that ran, by step."""
    names = {
        stage: step_of(job) for job in jobs_so_far(spark) for stage in scala_items(job.stageIds())
    }
    steps: dict[str, _StepCost] = {}
    gateway: Any = spark.sparkContext._gateway
    no_quantiles = gateway.new_array(gateway.jvm.double, 0)
    store = spark._jsc.sc().statusStore()
    for stage in scala_items(store.stageList(None, False, False, no_quantiles, None)):
        step = steps.setdefault(names.get(stage.stageId(), "other"), _StepCost())
        step.cpu_s += stage.executorCpuTime() / 1e9
        step.run_s += stage.executorRunTime() / 1e3
        step.rows += stage.inputRecords() + stage.shuffleReadRecords()
        step.shuffled += stage.shuffleWriteBytes()
        step.spilled += stage.diskBytesSpilled()
    return steps


def _lines(workload: str, rows: int, taken: list[_MergeCost]) -> Iterator[Result]:
    first = taken[0]
    if any(one.written != rows for one in taken):
        raise AssertionError(f"of {rows} rows {[one.written for one in taken]} were written")
    for workers, one in zip(WORKERS, taken, strict=True):
        on = f"{workload}, {workers} workers"
        baseline = "one worker"
        for metric, value, base in (
            ("CPU of driver and executors", (one.cpu_s, "s"), first.cpu_s),
            ("CPU of executors", (one.executors_s, "s"), first.executors_s),
            ("wall", (one.wall_s, "s"), first.wall_s),
            ("changes per CPU second", (rows / one.cpu_s, "rows"), rows / first.cpu_s),
        ):
            yield result(NAME, on, metric, value=value, baseline=(baseline, base), goal="-")
        for name, step in sorted(one.steps.items(), key=lambda item: -item[1].cpu_s):
            if step.cpu_s >= _LEAST * one.executors_s:
                other = first.steps.get(name, _StepCost())
                yield from _step_lines(f"{on}: {name}", rows, step, other)


def _step_lines(workload: str, rows: int, step: _StepCost, on_one: _StepCost) -> Iterator[Result]:
    for metric, unit in (
        ("task CPU", "s"),
        ("rows read per core-second", "rows"),
        ("shuffle bytes per change", "bytes"),
        ("bytes spilled to disk", "bytes"),
    ):
        value, base = (_measures(one, rows)[metric] for one in (step, on_one))
        yield result(
            NAME,
            workload,
            metric,
            value=(value, unit),
            baseline=("one worker", base),
            goal="-",
        )


def _measures(step: _StepCost, rows: int) -> dict[str, float]:
    return {
        "task CPU": step.cpu_s,
        "rows read per core-second": step.rows / step.run_s if step.run_s else 0.0,
        "shuffle bytes per change": step.shuffled / rows,
        "bytes spilled to disk": float(step.spilled),
    }
