"""How soon changes were queryable: measured by the plan that made them so, and by no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.plan import Plan
from tideline.contract.receipt import ColumnLineage, Outcome, TableReceipt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"


def run(spark: SparkSession, plan: Plan) -> TableReceipt:
    from tideline_spark.merge import run_plan

    (receipt,) = run_plan(spark, plan).tables
    return receipt


def row(op: str, key: int, at: datetime) -> Row:
    return Row(T, op, {"id": key}, at=at)


def within(plan: Plan, us: int) -> Plan:
    (table,) = plan.tables
    return msgspec.structs.replace(plan, tables=(msgspec.structs.replace(table, within_us=us),))


def test_changes_count_once_in_the_plan_that_made_them_queryable(
    tmp_path: Path, spark: SparkSession
) -> None:
    now = datetime.now(UTC)
    long_ago = now - timedelta(hours=2)
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int64"}, ["id"])))
    history.commit(row("c", 1, long_ago))
    built = run(spark, history.plan())
    assert built.timeliness is None, "a table that is built has no row that was waited for"
    assert built.lineage == (ColumnLineage("id", "int64"),)
    old = [row("c", key, long_ago) for key in (2, 3, 4)]
    fresh = [row("u", key, now) for key in (2, 3)]
    history.commit(*old, *fresh, row("r", 1, long_ago))
    history.commit(row("u", 4, now))
    hour = 3_600_000_000
    plan = within(history.plan(), hour)
    rival = within(history.plan(), hour)
    first = run(spark, plan)
    figures = first.timeliness
    assert figures is not None
    # A part with both, a part with fresh ones only; the dumped row does not count.
    assert (figures.changes, figures.late, figures.within_us) == (6, 3, hour)
    assert figures.slowest_us >= 2 * hour
    assert figures.queryable_us - figures.slowest_us == int(long_ago.timestamp() * 1_000_000)
    history.commit(row("u", 4, now))
    later = run(spark, within(history.plan(), hour))
    assert later.timeliness is not None
    assert (later.timeliness.changes, later.timeliness.late) == (1, 0)
    # Run again, its receipt lost: the same figures, although the table has moved on since.
    again = run(spark, plan)
    assert (again.outcome, again.timeliness) == (Outcome.ALREADY_APPLIED, figures)
    # A rival's plan of the same changes has made none of them queryable.
    assert run(spark, rival).timeliness is None
    assert (first.attempts, first.conflicts) == (1, 0)

    # What is committed is committed, measurable or not.
    for part in plan.tables[0].parts:
        history.part_path(part.key).unlink()
    gone = run(spark, plan)
    assert (gone.outcome, gone.timeliness, gone.error) == (Outcome.ALREADY_APPLIED, None, None)
    (warning,) = gone.warnings
    assert "a part is missing" in warning
