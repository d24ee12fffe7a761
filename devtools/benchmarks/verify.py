"""Verifies a whole table, and dumps and merges the same table in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import java_s
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle, spark_application
from tideline.contract.request import DumpRequest
from tideline.contract.verification import VerificationOutcome
from tideline.control import ControlClient
from tideline.planner import plan_merge
from tideline.planner.verifying import plan_verification
from tideline.settings import Settings
from tideline.store.chain import Chain
from tideline.store.objects import open_store
from tideline_spark.merge import run_plan
from tideline_spark.verify import run_verification

NAME = "verify"
TABLE = "public.orders"
ROUNDS = 3


def run(rows: int) -> Iterator[Result]:
    """Measure CPU of the worker, and of it with a warm Spark application; the best of three."""
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, rows)
        server.cursor.execute("VACUUM ANALYZE orders")
        settings = server.settings(initial="dump", chunk_rows=50_000)
        run_until_idle(settings, server)
        with spark_application() as spark:
            run_plan(spark, plan_merge(settings, plan_id="initial"))
            rounds = [_round(spark, server, settings, rows, number) for number in range(ROUNDS)]
    dumped, merged, read, compared = (min(figures) for figures in zip(*rounds, strict=True))
    for metric, value, baseline in (
        ("CPU of the worker", read, dumped),
        ("CPU of Spark", compared, merged),
        ("CPU of both", read + compared, dumped + merged),
    ):
        yield result(
            NAME,
            f"{rows} rows, equal",
            metric,
            value=(value, "s"),
            baseline=("dump of the same table, merged", baseline),
            goal="≤ 1.2 of the dump",
        )


def _round(
    spark: Any, server: CaptureRig, settings: Settings, rows: int, number: int
) -> tuple[float, float, float, float]:
    """Measure CPU seconds of a dump, its merge, a verification's reading, and its comparison."""
    dumped = _asked(settings, server, DumpRequest(f"dump-{number}", (TABLE,)))
    plan = plan_merge(settings, plan_id=f"round-{number}")
    merged = _of_spark(lambda: run_plan(spark, plan))
    name = f"verify-{number}"
    read = _asked(settings, server, DumpRequest(name, (TABLE,), purpose="verify"))
    chain = Chain(open_store(settings.store), settings.pipeline)
    tail = chain.tail()
    assert tail is not None
    answers = chain.open_state(tail).recent
    finished = next(one.manifest_number for one in answers if one.request_id == name)
    planned = plan_verification(
        settings, name, verify_id=name, finished_in=finished or 0, tables=[TABLE]
    )
    found = []
    compared = _of_spark(lambda: found.append(run_verification(spark, planned.plan)))
    [table] = found[0].tables
    if (table.outcome, table.rows) != (VerificationOutcome.EQUAL, rows):
        raise AssertionError(f"the table is {table.outcome.value}, {table.rows} rows of {rows}")
    return dumped, merged, read, compared


def _asked(settings: Settings, server: CaptureRig, request: DumpRequest) -> float:
    """Measure CPU seconds of a worker that serves ``request`` and ends."""
    with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
        control_client.ask(request)
    return run_until_idle(settings, server).cpu_s


def _of_spark(work: Callable[[], object]) -> float:
    """Measure CPU seconds of this process's Java descendants during ``work``."""
    before = java_s()
    work()
    return java_s() - before
