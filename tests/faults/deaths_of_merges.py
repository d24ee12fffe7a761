"""Merges that die anywhere, for tables of every format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.camera import Through
from tests.faults.deaths import Deaths
from tests.faults.every_mode import LOG, NOW, EveryMode
from tests.faults.troubles import Troubles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def die_anywhere(
    spark: SparkSession, tables: EveryMode, through: Through | None = None
) -> Counter[str]:
    """Have ``tables``, which nothing was merged into, made and then changed with a step of their
    columns, with parts that were ruined in between, by merges that die, at requests of ``through``
    too; they end as undisturbed ones do. Return the counts."""
    counts = Counter[str]()
    deaths = Deaths(spark, tables, counts, seed=4, recoveries=1, moments=2, through=through)
    troubles = Troubles(spark, tables, counts, seed=9)
    deaths.merge("first")
    tables.more(16, step=True)
    plan = troubles.waiting(NOW, LOG)
    troubles.ruined_parts(plan, {NOW: "flipped", LOG: "gone"})
    assert counts["parts named"] == 2
    deaths.merge(plan.plan_id, NOW, LOG)
    deaths.replay()
    assert counts["images"] >= 8, counts
    assert counts["taken up"] == 2, counts
    return counts
