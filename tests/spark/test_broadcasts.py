"""Which side of a join a merge broadcasts: the driver holds all of it, and each executor too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parts import History
from tests.spark.orders import applied, order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
KEYS = 4_000_000


def keys_in(session: SparkSession, file: Path) -> DataFrame:
    """Sequential keys: 32 MB in a file of less than a quarter of that."""
    keys = pa.array(range(KEYS), pa.int64())
    pq.write_table(
        pa.table({"id": keys}), file, column_encoding="DELTA_BINARY_PACKED", use_dictionary=False
    )
    assert file.stat().st_size < 8 * 2**20, "Spark's estimate is below its threshold"
    return session.read.parquet(str(file))


def planned(spark: SparkSession, folder: Path) -> str:
    """The plan of a join of such keys, as Spark makes it before anything ran."""
    session = spark.newSession()
    left, right = (keys_in(session, folder / f"{name}.parquet") for name in ("left", "right"))
    joined = left.join(right, "id")
    return str(joined._jdf.queryExecution().executedPlan().toString())


def test_rows_are_not_broadcast_by_the_size_of_their_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Ten million keys were: the driver of a merge of as many changes ran out of memory."""
    assert "SortMergeJoin" in planned(spark, tmp_path)


@pytest.mark.parametrize(
    ("rows_max", "few", "target_max", "expected"),
    [
        # Counted: the driver holds them, and the target stays where it is.
        (10_000, 10, -1, "10485760"),
        (0, 3, -1, "10485760"),
        # More: their shuffle is measured.
        (0, 2, -1, "-1"),
        # A broadcast is a job more than a small target takes.
        (10_000, 10, 2**30, "-1"),
    ],
)
def test_a_plan_of_few_rows_spares_the_target_its_shuffle(
    history: History,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    rows_max: int,
    few: int,
    target_max: int,
    expected: str,
) -> None:
    from tideline_spark import local_parts
    from tideline_spark.formats.registry import open_target

    monkeypatch.setattr(local_parts, "ROWS_MAX", rows_max)
    monkeypatch.setattr(local_parts, "BROADCAST_ROWS_MAX", few)
    monkeypatch.setattr(local_parts, "TARGET_BYTES_MAX", target_max)
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    history.commit(*(order("u", 1, status) for status in ("paid", "sent", "back")))
    [table] = history.plan().tables
    session = spark.newSession()
    local_parts.tune(session, table, open_target(session, table.target).look())
    assert session.conf.get(THRESHOLD) == expected
