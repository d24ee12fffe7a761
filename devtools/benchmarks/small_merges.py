# ruff: noqa: S608  statements are made of numbers and names of ours
"""Measures a merge's fixed cost: ten changes into each of a hundred small tables, in one plan.

The jobs are counted by purpose, in Delta's words or by our line that starts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from devtools.benchmarks.clocks import clocks, since
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle, spark_application
from devtools.benchmarks.spark_steps import jobs_so_far, step_of
from tideline.contract.receipt import Outcome
from tideline.planner import plan_merge
from tideline.settings import Settings
from tideline_spark.merge import run_plan

NAME = "small_merges"
TABLES = 100
CHANGES = 10
ROUNDS = 4
"""The last one counts: by then a long-lived session is warm."""
JOBS_GOAL, CPU_GOAL_S = 8, 1.2


def run(rows: int) -> Iterator[Result]:
    """Measure tables of a fiftieth of ``rows`` rows each: 10,000 with the default 500,000."""
    each = rows // 50
    with rig() as server:
        for number in range(TABLES):
            server.cursor.execute(
                f"CREATE TABLE small_{number} (id bigint PRIMARY KEY, status text, note text,"
                " amount numeric(12,2), changed timestamptz);"
                f"INSERT INTO small_{number} SELECT g, 'new', 'note ' || g, g, now()"
                f" FROM generate_series(1, {each}) g"
            )
        settings = server.settings(initial="dump")
        run_until_idle(settings, server)
        # By default Spark forgets all but the last thousand.
        kept = {"spark.ui.retainedJobs": "100000"}
        with spark_application("small merges", others=kept) as spark:
            _merged(spark, settings, "initial")
            yield from _lines(each, *_rounds(spark, server, settings, each))


def _rounds(
    spark: Any, server: CaptureRig, settings: Settings, rows: int
) -> tuple[float, float, Counter[str]]:
    """Measure CPU and wall seconds of the last plan, and its jobs."""
    taken, jobs = (0.0, 0.0), Counter[str]()
    for number in range(ROUNDS):
        for table in range(TABLES):
            server.cursor.execute(
                f"UPDATE small_{table} SET status = 'paid', amount = amount + 1"
                f" WHERE id % {rows // (CHANGES - 2)} = {number + 1} AND id <= {rows};"
                f"INSERT INTO small_{table} SELECT g, 'new', 'late', g, now() FROM"
                f" generate_series({rows + number * 2 + 1}, {rows + number * 2 + 2}) g"
            )
        run_until_idle(settings, server)
        before, begun = _jobs(spark), clocks()
        _merged(spark, settings, f"round-{number}")
        taken = since(begun)
        jobs = _jobs(spark) - before
    return *taken, jobs


def _merged(spark: Any, settings: Settings, name: str) -> None:
    """Merge all waiting changes in one plan."""
    plan = plan_merge(settings, plan_id=name)
    receipt = run_plan(spark, plan)
    wrong = [one.error for one in receipt.tables if one.outcome is not Outcome.APPLIED]
    changes = [one.rows_read for one in receipt.tables if not plan.tables[0].create]
    if wrong or len(receipt.tables) != TABLES or set(changes) - {CHANGES}:
        raise AssertionError(f"the merge of {name} went wrong: {wrong[:1] or set(changes)}")


def _jobs(spark: Any) -> Counter[str]:
    """Count the jobs so far, by step."""
    return Counter(map(step_of, jobs_so_far(spark)))


def _lines(rows: int, cpu_s: float, wall_s: float, jobs: Counter[str]) -> Iterator[Result]:
    workload = f"{CHANGES} changes into each of {TABLES} tables of {rows} rows"
    cpu, wall, count = (value / TABLES for value in (cpu_s, wall_s, jobs.total()))
    for metric, value, baseline, goal in (
        ("CPU", (cpu, "s"), ("goal", CPU_GOAL_S), f"≤ {CPU_GOAL_S} s"),
        ("wall", (wall, "s"), ("CPU", cpu), "-"),
        ("jobs", (count, "jobs"), ("goal", JOBS_GOAL), f"≤ {JOBS_GOAL}"),
    ):
        yield result(
            NAME, workload, f"{metric} per table", value=value, baseline=baseline, goal=goal
        )
    for step, count in jobs.most_common():
        yield result(
            NAME,
            workload,
            f"jobs per table: {step}",
            value=(count / TABLES, "jobs"),
            baseline=("all jobs", jobs.total() / TABLES),
            goal="-",
        )
