"""The parity suite's random histories on BigQuery tables, in the emulator: its columns have types
and names that this has.

``BIGQUERY_HISTORIES`` says how many of each mode, in the long form (4): one takes 20 seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.bigquery_place import with_bigquery
from tests.spark.test_parity import FOLLOWED, compare
from tideline.contract.modes import Mode
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES = int(os.environ.get("BIGQUERY_HISTORIES", "4"))
_SEEDS = (*range(20, 20 + HISTORIES), 218)
"""The last one has a truncate that ends rows which no change of its plan touches."""
MODES = (Mode.CURRENT, Mode.SOFT_DELETES, Mode.HISTORY)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return with_bigquery(request, Warehouse(url=tmp_path.as_uri()))


@pytest.mark.timeout(600)
def test_a_target_holds_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse
) -> None:
    """Merged several times, with changes of the columns and a dump that ends rows."""
    compare(spark, tmp_path, Mode.CURRENT, 10, frozenset(), drop_columns=True, place=place)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", _SEEDS)
def test_targets_hold_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse, mode: Mode, seed: int
) -> None:
    """With every change of columns followed, or some of them ignored."""
    drawn = Random(seed)
    ignored = frozenset(kind for kind in FOLLOWED if seed % 2 and drawn.random() < 0.5)
    drop_columns = drawn.random() < 0.5
    compare(spark, tmp_path, mode, seed, ignored, drop_columns=drop_columns, place=place)
