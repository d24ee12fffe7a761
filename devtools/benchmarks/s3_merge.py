"""Merges the same changes with store and warehouse in S3 and in folders, and counts requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import clocks, since
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle, spark_application
from devtools.services.s3 import S3Server
from tideline.planner import plan_merge
from tideline.planner.runs import run_merge
from tideline.settings import Settings
from tideline_spark.merge import run_plan

NAME = "s3_merge"
CHANGES = 10_000
ROUNDS = 6
"""The last half counts: by then the application is warm for both."""
_BUCKETS = ("store", "warehouse")


@dataclass
class _Measured:
    """The costs of each round: CPU and wall seconds from plan to receipt, requests by place and
    kind."""

    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    requests: list[Counter[str]] = field(default_factory=list)


def run(rows: int) -> Iterator[Result]:
    """Measure medians of the last rounds; each table has 2 × ``rows`` rows."""
    table_rows = rows * 2
    with rig() as server, S3Server(server.folder / "s3", buckets=_BUCKETS) as s3:
        orders.create(server.cursor)
        orders.fill(server.cursor, table_rows)
        places = {name: {"url": f"s3://{name}/shop", **s3.access} for name in _BUCKETS}
        limits: dict[str, Any] = {"initial": "dump", "chunk_rows": 50_000}
        in_files = server.settings(pipeline="in_files", **limits)
        in_s3 = server.settings(pipeline="in_s3", places=places, **limits)
        with spark_application("merges in S3", pipeline=in_s3) as spark:
            for settings in (in_files, in_s3):
                run_until_idle(settings, server)
                run_plan(spark, plan_merge(settings, plan_id="initial"))
            files, stored = _rounds(spark, server, s3, (in_files, in_s3), table_rows)
        yield from _lines(f"{CHANGES} changes into {table_rows} rows", files, stored)


def _rounds(
    spark: Any, server: CaptureRig, s3: S3Server, pipelines: tuple[Settings, ...], rows: int
) -> list[_Measured]:
    measured = [_Measured() for _ in pipelines]
    for number in range(ROUNDS):
        first = rows - (number + 1) * CHANGES
        server.cursor.execute(
            "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s",
            (first, first + CHANGES - 1),
        )
        # Each goes first in turn.
        order = list(zip(pipelines, measured, strict=True))
        for settings, into in order if number % 2 else reversed(order):
            run_until_idle(settings, server)
            before = _requests(s3)
            begun = clocks()
            plan = plan_merge(settings, plan_id=f"round-{number}")
            receipt = run_merge(settings, plan, partial(run_plan, spark, plan), print)
            cpu, wall = since(begun)
            into.cpu_s.append(cpu)
            into.wall_s.append(wall)
            into.requests.append(_requests(s3) - before)
            if receipt.tables[0].updated != CHANGES:
                raise AssertionError(f"the merge updated {receipt.tables[0].updated} rows")
    return measured


def _requests(s3: S3Server) -> Counter[str]:
    return Counter(
        {f"{bucket}, {kind}": n for bucket in _BUCKETS for kind, n in s3.requests(bucket).items()}
    )


def _lines(workload: str, files: _Measured, stored: _Measured) -> Iterator[Result]:
    for metric, ours, theirs in (
        ("CPU of one merge", stored.cpu_s, files.cpu_s),
        ("wall of one merge", stored.wall_s, files.wall_s),
    ):
        yield result(
            NAME,
            workload,
            metric,
            value=(_median(ours), "s"),
            baseline=("store and warehouse in folders", _median(theirs)),
            goal="none",
        )
    last = stored.requests[ROUNDS // 2 :]
    for kind in sorted(set().union(*last)):
        yield result(
            NAME,
            workload,
            f"requests of one merge: {kind}",
            value=(_median([one[kind] for one in last]), "requests"),
            baseline=("", 0),
            goal="none",
        )


def _median(values: list[Any]) -> float:
    counted = sorted(values[-(ROUNDS - ROUNDS // 2) :])
    return float(counted[len(counted) // 2])
