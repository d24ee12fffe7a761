# ruff: noqa: S608  statements are made of numbers and paths
"""Merges 10,000 changes into tables of growing size, with recent and uniform keys, by both merges.

The plain MERGE follows the documentation: on equal keys, no bounds, deletion vectors off, the rows
already folded. It runs on a copy of the table, in the same application, right after ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devtools.benchmarks import orders
from devtools.benchmarks.clocks import clocks, since
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
_MERGE = """
MERGE INTO delta.`{target}` t USING plain s ON t.id = s.id
WHEN MATCHED AND s._tl_seq > t._tl_seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The numbers of rows of the tables, of changes per merge (four updates for each insert), and
    of rounds, of which the last three count."""

    rungs: tuple[int, ...]
    changes: int = 10_000
    warm_up: int = 3
    rounds: int = 5

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
    with spark_application("ladder") as spark:
        yield from climb(spark, Ladder(tuple(rows * times for times in RUNGS)))


def climb(spark: Any, ladder: Ladder) -> Iterator[Result]:
    """Yield the medians of the last rounds of each rung and kind of keys; then the growth from the
    lowest rung to the highest."""
    taken: dict[tuple[int, str], _Taken] = {}
    bottom, top = ladder.rungs[0], ladder.rungs[-1]
    for rung in ladder.rungs:
        warm_up = ladder.warm_up if rung == bottom else min(1, ladder.warm_up)
        for keys, found in _rung(spark, ladder, rung, warm_up):
            taken[rung, keys] = found
            yield from _lines(f"{ladder.changes} changes, {keys} keys, into {rung} rows", found)
    for keys in KEYS:
        low, high = taken[bottom, keys], taken[top, keys]
        yield result(
            NAME,
            f"{keys} keys: {top} rows by {bottom} rows",
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


def _rung(spark: Any, ladder: Ladder, rows: int, warm_up: int) -> Iterator[tuple[str, _Taken]]:
    with rig() as server:
        orders.create(server.cursor)
        orders.fill(server.cursor, rows)
        settings = server.settings(initial="dump", chunk_rows=50_000)
        run_until_idle(settings, server)
        _merged(spark, plan_merge(settings, plan_id="initial"))
        target = Path(settings.warehouse.url.removeprefix("file://")) / "public" / "orders"
        twin = target.parent / "plain"
        shutil.copytree(target, twin)
        spark.sql(
            f"ALTER TABLE delta.`{twin}` SET TBLPROPERTIES ('delta.enableDeletionVectors'='false')"
        )
        last = rows
        for keys in KEYS:
            taken = _Taken()
            for number in range(warm_up + ladder.rounds):
                _change(server, ladder, keys, last, number)
                last += ladder.changes - ladder.updates
                run_until_idle(settings, server)
                plan = plan_merge(settings, plan_id=f"{keys}-{number}")
                ours, plain = _round(spark, plan, twin, ladder.changes)
                taken.ours.append(ours)
                taken.plain.append(plain)
            _check(spark, target, twin)
            counted = min(_COUNTED, ladder.rounds)
            taken.ours, taken.plain = taken.ours[-counted:], taken.plain[-counted:]
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
    spark: Any, plan: Plan, twin: Path, changes: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Measure CPU and wall time of our merge of ``plan``, and of a plain one of the same rows."""
    begun = clocks()
    receipt = _merged(spark, plan)
    ours = since(begun)
    if receipt.updated + receipt.inserted != changes:
        raise AssertionError(f"the merge wrote {receipt.updated} and {receipt.inserted} rows")
    paths = [f"{plan.store_url}/{part.key}" for part in plan.tables[0].parts]
    begun = clocks()
    source = spark.read.parquet(*paths).drop("_tl_op", "_tl_tx")
    for name, kind in (("_tl_overflow", "map<string,string>"), ("_tl_pending", "array<string>")):
        source = source.selectExpr("*", f"cast(null AS {kind}) AS {name}")
    source.createOrReplaceTempView("plain")
    spark.sql(_MERGE.format(target=twin)).collect()
    return ours, since(begun)


def _merged(spark: Any, plan: Plan) -> TableReceipt:
    """Return the one table's receipt; plans do not reach their cap at these sizes."""
    (receipt,) = run_plan(spark, plan).tables
    if receipt.error is not None:
        raise AssertionError(f"the merge failed: {receipt.error}")
    return receipt


def _check(spark: Any, target: Path, twin: Path) -> None:
    """Check that both tables are equal, so that the measured work was the same."""
    sums = [
        spark.sql(
            f"SELECT count(*) rows, sum(amount) amount, sum(_tl_seq) seqs FROM delta.`{path}`"
        ).collect()[0]
        for path in (target, twin)
    ]
    if sums[0] != sums[1]:
        raise AssertionError(f"the tables differ: {sums}")


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
