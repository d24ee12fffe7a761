"""Merges from blocks: the warehouse gets what it gets from parts, and every file is counted."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.fixtures.blocks import PLAIN, random_history, roll_up
from tests.fixtures.parts import History
from tests.spark.random_source import TABLE
from tideline.contract import layout
from tideline.contract.receipt import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("blocks_of_ten")


def merged(history: History, spark: SparkSession) -> tuple[int, int, dict[str, Any]]:
    """How many roll-ups and rows one plan reads, and what the tables hold then."""
    from tideline_spark.merge import run_plan  # heavy

    plan = history.plan(plan_id="the rest")
    files = [part for table in plan.tables for part in table.parts]
    receipt = run_plan(spark, plan)
    assert {one.outcome for one in receipt.tables} == {Outcome.APPLIED}, receipt
    return (
        sum(layout.parse_rollup_key(file.key) is not None for file in files),
        sum(one.rows_read for one in receipt.tables),
        {name: history.rows(spark, name) for name in (TABLE, PLAIN)},
    )


def test_the_warehouse_gets_the_same(tmp_path: Path, spark: SparkSession) -> None:
    """Into a table that a first plan has brought into a block, and into one that is recreated."""
    history = random_history(tmp_path / "one", 11, 31)
    History(tmp_path / "one", merge={"parts_max": 8}).merge(spark, TABLE)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    loose = History(tmp_path / "two")
    loose.schemas = dict(history.schemas)
    assert len(roll_up(history)) == 3
    files, rows, expected = merged(loose, spark)
    assert (files, rows > 80) == (0, True)
    rolled, read, found = merged(history, spark)
    assert rolled >= 3
    assert (read, found) == (rows, expected)


def test_a_roll_up_with_other_rows_is_not_merged(tmp_path: Path, spark: SparkSession) -> None:
    history = random_history(tmp_path, 12, 11)
    (block,) = roll_up(history)
    file = next(file for file in block.files if file.table == TABLE)
    path = history.part_path(file.key)
    rows = pq.read_table(io.BytesIO(path.read_bytes()))
    pq.write_table(rows.slice(1), path)
    receipts = {one.table: one for one in history.merge(spark).tables}
    assert receipts[TABLE].outcome is Outcome.FAILED
    assert file.key in (receipts[TABLE].error or "")
    assert receipts[PLAIN].outcome is Outcome.APPLIED
    assert not Path(history.target(TABLE).removeprefix("file://")).exists()
