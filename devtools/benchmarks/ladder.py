# ruff: noqa: S608  statements are made of numbers
"""Merges 10,000 changes into tables of growing size, with recent and uniform keys, by both merges
and into both formats.

The plain MERGE follows the documentation of each format: on equal keys, no bounds, deletion vectors
off, the rows already folded. It runs on a copy of the table, in the same application, right after
ours; the formats take the same changes in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import clocks, since
from devtools.benchmarks.ladder_targets import (
    FORMATS,
    LadderTarget,
    check_equal,
    merge_plainly,
    open_ladder,
)
from devtools.benchmarks.result import Result, result
from devtools.benchmarks.rig import CaptureRig, rig, run_until_idle, spark_application
from tideline.contract.plan import Plan
from tideline.contract.receipt import TableReceipt
from tideline.planner import plan_merge
from tideline_spark.merge import run_plan

NAME = "ladder"
RUNGS = (2, 6, 20)
"""Times ``--rows``: with the default 500,000 one, three and ten million rows."""
KEYS = ("recent", "uniform")
GOALS = {"recent": 1.3, "uniform": 3.0}
_COUNTED = 3


@dataclass(frozen=True, slots=True)
class Ladder:
    """The numbers of rows of the tables, of changes per merge (four updates for each insert), and
    of rounds, of which the last three count; and the formats of the tables."""

    rungs: tuple[int, ...]
    changes: int = 10_000
    warm_up: int = 3
    rounds: int = 5
    formats: tuple[str, ...] = FORMATS

    @property
    def updates(self) -> int:
        return self.changes * 8 // 10


@dataclass
class _Taken:
    """CPU and wall seconds of the rounds of one rung and kind of keys: ours, and plain."""

    ours: list[tuple[float, float]] = field(default_factory=list)
    plain: list[tuple[float, float]] = field(default_factory=list)

    def cpu_s(self, of: str) -> float:
        return _median([cpu for cpu, _ in getattr(self, of)])

    def wall_s(self, of: str) -> float:
        return _median([wall for _, wall in getattr(self, of)])


def run(rows: int) -> Iterator[Result]:
    """Run in a separate Spark application."""
    yield from run_ladder(Ladder(tuple(rows * times for times in RUNGS)))


def run_ladder(ladder: Ladder) -> Iterator[Result]:
    """Run ``ladder`` in a separate Spark application."""
    with spark_application("ladder", every_format=True) as spark:
        yield from climb(spark, ladder)


def climb(spark: Any, ladder: Ladder) -> Iterator[Result]:
    """Yield the medians of the last rounds of each rung, kind of keys and format; then the growth
    from the lowest rung to the highest."""
    taken: dict[tuple[int, str, str], _Taken] = {}
    bottom, top = ladder.rungs[0], ladder.rungs[-1]
    for rung in ladder.rungs:
        warm_up = ladder.warm_up if rung == bottom else min(1, ladder.warm_up)
        for keys, found in _rung(spark, ladder, rung, warm_up):
            for one, figures in found.items():
                taken[rung, keys, one] = figures
                workload = f"{ladder.changes} changes, {keys} keys, into {rung} rows, {one}"
                yield from _lines(workload, figures)
    for one in ladder.formats:
        for keys in KEYS:
            low, high = taken[bottom, keys, one], taken[top, keys, one]
            yield result(
                NAME,
                f"{keys} keys: {top} rows by {bottom} rows, {one}",
                "growth of the CPU of one merge",
                value=(high.cpu_s("ours") / low.cpu_s("ours"), "×"),
                baseline=("growth of a plain MERGE", high.cpu_s("plain") / low.cpu_s("plain")),
                goal=f"≤ {GOALS[keys]} ×",
            )


def _lines(workload: str, taken: _Taken) -> Iterator[Result]:
    for metric, measure in (("CPU", taken.cpu_s), ("wall", taken.wall_s)):
        yield result(
            NAME,
            workload,
            f"{metric} of one merge",
            value=(measure("ours"), "s"),
            baseline=("plain MERGE of the same rows", measure("plain")),
            goal="less than the plain MERGE" if metric == "CPU" else "-",
        )


def _rung(
    spark: Any, ladder: Ladder, rows: int, warm_up: int
) -> Iterator[tuple[str, dict[str, _Taken]]]:
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, rows)
        settings = server.settings(initial="dump", chunk_rows=50_000)
        run_until_idle(settings, server)
        tables = {one: open_ladder(one, spark, settings, server.folder) for one in ladder.formats}
        for one, table in tables.items():
            _merged(spark, plan_merge(table.settings, plan_id=f"initial-{one}"))
            table.make_twin()
        last = rows
        for keys in KEYS:
            taken = {one: _Taken() for one in tables}
            for number in range(warm_up + ladder.rounds):
                _change(server, ladder, keys, last, number)
                last += ladder.changes - ladder.updates
                run_until_idle(settings, server)
                for one, table in tables.items():
                    plan = plan_merge(table.settings, plan_id=f"{keys}-{number}-{one}")
                    ours, plain = _round(spark, plan, table, ladder.changes)
                    taken[one].ours.append(ours)
                    taken[one].plain.append(plain)
            counted = min(_COUNTED, ladder.rounds)
            for one, table in tables.items():
                check_equal(table)
                taken[one].ours = taken[one].ours[-counted:]
                taken[one].plain = taken[one].plain[-counted:]
            yield keys, taken


def _change(server: CaptureRig, ladder: Ladder, keys: str, last: int, number: int) -> None:
    """Change each key once: the newest ones, or keys from all over the table."""
    updates = ladder.updates
    if keys == "recent":
        where = f"id > {last - updates}"
    else:
        step = last // updates
        where = f"id % {step} = {number % step} AND id <= {step * updates}"
    server.cursor.execute(
        f"UPDATE orders SET amount = amount + 1, updated_at = updated_at + interval '1 ms'"
        f" WHERE {where}"
    )
    new_last = last + ladder.changes - updates
    server.cursor.execute(
        f"INSERT INTO orders {orders.ROW} FROM generate_series({last + 1}, {new_last}) g"
    )


def _round(
    spark: Any, plan: Plan, table: LadderTarget, changes: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Measure CPU and wall time of our merge of ``plan``, and of a plain one of the same rows."""
    begun = clocks()
    receipt = _merged(spark, plan)
    ours = since(begun)
    if receipt.updated + receipt.inserted != changes:
        raise AssertionError(f"the merge wrote {receipt.updated} and {receipt.inserted} rows")
    paths = [f"{plan.store_url}/{part.key}" for part in plan.tables[0].parts]
    begun = clocks()
    merge_plainly(table, paths)
    return ours, since(begun)


def _merged(spark: Any, plan: Plan) -> TableReceipt:
    """Return the one table's receipt; plans do not reach their cap at these sizes."""
    (receipt,) = run_plan(spark, plan).tables
    if receipt.error is not None:
        raise AssertionError(f"the merge failed: {receipt.error}")
    return receipt


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
