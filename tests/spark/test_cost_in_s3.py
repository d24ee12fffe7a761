"""What `tideline cost` says of a warehouse's requests, beside those of merges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from devtools.services.s3 import S3Server
from tests.fixtures.object_storage import BUCKET, place_in
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.cost import DAY_S, Cost, Prices, RequestRates, Traffic, cost_of
from tideline.planner import plan_merge
from tideline_spark.merge import run_plan

CLOSE = 0.25
MERGES = 10
"""As many as Delta's checkpoints are apart: each row of the log is read as often as it will be."""
BUSY, IDLE = "public.busy", "public.idle"


def modelled(*, tables: int, busy: int, merges: int) -> Cost:
    """The model's day of so many merges, each of all busy tables."""
    traffic = Traffic(tables=tables, busy=busy, changes_per_s=100.0 * merges / DAY_S)
    return cost_of(traffic, RequestRates(merge_every_s=DAY_S / merges), Prices(0.0, 0.0, 0.0))


def test_requests_of_merges(spark_on_s3: SparkSession, s3: S3Server, tmp_path: Path) -> None:
    """Of two tables one has changes, an insert or an update in turn."""
    history = History(tmp_path)
    history.settings = history.settings.model_copy(update={"warehouse": place_in(s3)})
    for table in (BUSY, IDLE):
        history.commit(Shaped(schema_of(table, {"id": "int32"}, ["id"])))
        history.commit(*(Row(table, "c", {"id": number}) for number in range(100)))
    run_plan(spark_on_s3, plan_merge(history.settings, plan_id="first"))

    def merges() -> None:
        for number in range(MERGES):
            op, key = ("u", 7) if number % 2 else ("c", 100 + number)
            history.commit(Row(BUSY, op, {"id": key}))
            receipt = run_plan(spark_on_s3, plan_merge(history.settings, plan_id=f"m{number}"))
            assert [one.table for one in receipt.tables] == [BUSY]
            assert receipt.tables[0].applied_manifest == history.last_number

    found, expected = counted(s3, merges), modelled(tables=2, busy=1, merges=MERGES)
    assert found["GET"] == pytest.approx(expected.gets["warehouse"], rel=CLOSE)
    assert found["PUT"] + found["LIST"] == pytest.approx(expected.puts["warehouse"], rel=CLOSE)


def counted(s3: S3Server, work: Callable[[], None]) -> Counter[str]:
    before = s3.requests(BUCKET)
    work()
    return s3.requests(BUCKET) - before
