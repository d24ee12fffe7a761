"""Maintenance: only where it pays, never data, never a file that someone may need."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.progress import external_of
from tideline.contract.errors import Misconfigured
from tideline.contract.maintenance import (
    Files,
    MaintenanceOrder,
    MaintenanceOutcome,
    TableMaintenance,
)
from tideline.contract.receipt import Outcome
from tideline.planner import applied_state
from tideline.planner.maintaining import order_maintenance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"
U = "public.u"
NEVER = "public.v"
LOG = "public.log"
DAY_S = 86_400


def row(table: str, op: str, key: int, text: str = "x") -> Row:
    return Row(table, op, {"id": key, "text": text})


def maintained(spark: SparkSession, order: MaintenanceOrder) -> dict[str, TableMaintenance]:
    from tideline_spark.maintain import maintain

    return {one.table: one for one in maintain(spark, order).tables}


def ordered(history: History, small_files_min: int, **more: float) -> MaintenanceOrder:
    """All tables, but for ``small_files_min`` by the settings' own thresholds."""
    order = order_maintenance(history.settings, maintenance_id=f"m{time.monotonic_ns()}")
    thresholds = replace(order.thresholds, small_files_min=small_files_min, **more)
    return replace(order, thresholds=thresholds)


def content(history: History, spark: SparkSession) -> dict[int, str]:
    return {found["id"]: found["text"] for found in history.rows(spark, T)}


def test_tables_are_maintained_where_it_pays(tmp_path: Path, spark: SparkSession) -> None:
    history = History(tmp_path, tables={LOG: {"mode": "append"}})
    columns = {"id": "int64", "text": "string"}
    history.commit(*(Shaped(schema_of(name, columns, ["id"])) for name in (T, U, NEVER, LOG)))
    history.commit(*(row(T, "c", key) for key in range(100)), row(U, "c", 1))
    history.commit(*(row(LOG, "c", key) for key in range(50)))
    history.merge(spark, T, U, LOG)
    log = history.target(LOG)
    batch = spark.newSession().read.format("delta").load(log).repartition(2).write.format("delta")
    batch.mode("overwrite").option("dataChange", "false").save(log)
    history.commit(row(T, "u", 1, "y"), row(T, "d", 2), row(T, "c", 200))
    history.merge(spark, T)
    expected = content(history, spark)
    target = Path(history.target(T).removeprefix("file://"))
    # Somebody else's table at one of the addresses: the others are maintained all the same.
    spark.newSession().sql(
        f"ALTER TABLE delta.`{history.target(U)}` SET TBLPROPERTIES ('tideline.incarnation' = 'x')"
    )

    left = maintained(spark, ordered(history, 3))
    assert left[NEVER].outcome is MaintenanceOutcome.LEFT
    assert (left[U].outcome, left[U].error_kind) == (MaintenanceOutcome.FAILED, "Misconfigured")
    figures = left[T].before
    assert left[T].outcome is MaintenanceOutcome.LEFT and figures is not None
    # A merge of few rows writes one file.
    assert (figures.files, figures.small, figures.fragmented) == (2, 2, 0)
    assert (figures.rows, figures.deleted, figures.vectors) == (102, 2, 1)

    old, young = target / "old.parquet", target / "young.parquet"
    for orphan, age_s in ((old, 10 * DAY_S), (young, DAY_S // 2)):
        orphan.write_bytes(b"x")
        os.utime(orphan, (time.time() - age_s,) * 2)
    too_soon = maintained(spark, ordered(history, 3, vacuum_hours=1.0))[T]
    assert (too_soon.outcome, too_soon.error_kind) == (MaintenanceOutcome.FAILED, "Misconfigured")
    assert old.exists()

    done = maintained(spark, ordered(history, 2, vacuum_hours=24.0))[T]
    assert (done.outcome, done.attempts, done.reason) == (
        MaintenanceOutcome.REWRITTEN,
        1,
        "2 small files",
    )
    assert done.after == Files(files=1, bytes=done.after.bytes if done.after else 0, rows=100)
    # What a running writer may have just written stays, and so does what a reader may still read.
    assert (old.exists(), young.exists(), done.vacuumed) == (False, True, 1)
    before = spark.newSession().read.format("delta").option("versionAsOf", 0).load(str(target))
    assert before.count() == 100
    assert content(history, spark) == expected
    # The changes of a batch are in order within its files.
    kept = maintained(spark, ordered(history, 2))[LOG]
    assert (kept.outcome, kept.before and kept.before.small) == (MaintenanceOutcome.LEFT, 2)
    assert "in order" in kept.reason

    # Nobody's rewrite is a change of data: ours, or the one that a user runs.
    spark.newSession().sql(f"OPTIMIZE delta.`{target}` ZORDER BY (text)")
    history.commit(row(T, "u", 3, "z"))
    (receipt,) = history.merge(spark, T).tables
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ())
    assert external_of(applied_state(history.settings).tables[T]) == ()

    # Beside a merge, whoever commits first: nothing is lost.
    history.commit(row(T, "u", 4, "w"), row(T, "d", 5))
    with ThreadPoolExecutor(2) as pool:
        merging = pool.submit(history.merge, spark, T)
        rewriting = pool.submit(maintained, spark, ordered(history, 2))
        (receipt,) = merging.result().tables
        assert rewriting.result()[T].outcome is not MaintenanceOutcome.FAILED
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ())
    expected |= {3: "z", 4: "w"}
    del expected[5]
    assert content(history, spark) == expected


def test_worn_files_are_told_by_the_rows_that_vectors_mark(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int64", "text": "string"}, ["id"])))
    history.commit(*(row(T, "c", key) for key in range(40)))
    history.merge(spark)
    history.commit(*(row(T, "d", key) for key in range(5)))
    history.merge(spark)
    order = ordered(history, 100)
    figures = maintained(spark, order)[T]
    assert figures.outcome is MaintenanceOutcome.REWRITTEN, figures
    assert figures.before is not None and figures.after is not None
    assert (figures.before.fragmented, figures.before.deleted) == (1, 5)
    assert (figures.after.rows, figures.after.deleted, figures.after.vectors) == (35, 0, 0)
    assert len(content(history, spark)) == 35
    history.commit(row(T, "u", 7, "y"))
    (receipt,) = history.merge(spark).tables
    assert (receipt.outcome, receipt.external_changes) == (Outcome.APPLIED, ())


def test_an_order_is_made_once(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int64"}, ["id"])))
    first = order_maintenance(history.settings, maintenance_id="run/1", tables=[T])
    assert first.named and [one.table for one in first.tables] == [T]
    history.commit(Shaped(schema_of(U, {"id": "int64"}, ["id"])))
    assert order_maintenance(history.settings, maintenance_id="run/1") == first
    with pytest.raises(Misconfigured, match=r"public\.x"):
        order_maintenance(history.settings, maintenance_id="run/2", tables=["public.x"])
