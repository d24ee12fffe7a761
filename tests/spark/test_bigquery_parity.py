"""The parity suite's random histories on BigQuery tables, in the emulator: its columns have types
and names that this has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.bigquery_place import with_bigquery
from tests.spark.test_parity import compare
from tideline.contract.modes import Mode
from tideline.contract.steps import StepKind
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORIES = 2
"""Of each mode, in the long form."""
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
@pytest.mark.parametrize("seed", range(20, 20 + HISTORIES))
def test_targets_hold_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse, mode: Mode, seed: int
) -> None:
    ignored = frozenset({StepKind.DROP, StepKind.RENAME}) if seed % 2 else frozenset()
    compare(spark, tmp_path, mode, seed, ignored, drop_columns=not seed % 2, place=place)
