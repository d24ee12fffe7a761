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
    assert [(line.workload, line.metric) for line in lines] == [
        ("100 changes, recent keys, into 400 rows", "CPU of one merge"),
        ("100 changes, recent keys, into 400 rows", "wall of one merge"),
        ("100 changes, uniform keys, into 400 rows", "CPU of one merge"),
        ("100 changes, uniform keys, into 400 rows", "wall of one merge"),
        ("recent keys: 400 rows by 400 rows", "growth of the CPU of one merge"),
        ("uniform keys: 400 rows by 400 rows", "growth of the CPU of one merge"),
    ]
    # Java's share is in it: Python alone would take next to nothing.
    assert min(line.value for line in lines) > 0.05
    assert [line.value for line in lines[-2:]] == [1.0, 1.0]
