"""The benchmark of the ladder runs, and judges what it measured: both tables hold the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(1_200)
def test_a_short_ladder(spark: SparkSession) -> None:
    from devtools.benchmarks.ladder import Ladder, climb

    lines = list(climb(spark, Ladder(rungs=(400,), changes=100, warm_up=0, rounds=1)))
    rungs = [
        (f"100 changes, {keys} keys, into 400 rows, {one}", f"{metric} of one merge")
        for keys in ("recent", "uniform")
        for one in ("delta", "iceberg")
        for metric in ("CPU", "wall")
    ]
    growth = [
        (f"{keys} keys: 400 rows by 400 rows, {one}", "growth of the CPU of one merge")
        for one in ("delta", "iceberg")
        for keys in ("recent", "uniform")
    ]
    assert [(line.workload, line.metric) for line in lines] == rungs + growth
    # Java's share is in it: Python alone would take next to nothing.
    assert min(line.value for line in lines) > 0.05
    assert [line.value for line in lines[-4:]] == [1.0] * 4
