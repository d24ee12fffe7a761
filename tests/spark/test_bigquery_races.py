"""Runs that write one BigQuery table at once: what Iceberg's must do, and with the same words.

That the checks notice is shown with code of ours broken on purpose; see
`tests.integration.test_bigquery_mutants`, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.bigquery_place import with_bigquery
from tests.fixtures.parts import History, Shaped
from tests.spark.orders import SCHEMA, applied, order
from tests.spark.test_iceberg_races import (
    test_a_replay_changes_nothing as test_a_replay_changes_nothing,
)
from tests.spark.test_iceberg_races import (
    test_a_run_that_a_longer_plan_overtakes_brings_nothing_back as test_a_longer_plan_is_first,
)
from tests.spark.test_iceberg_races import (
    test_a_run_that_a_shorter_plan_overtakes_is_refused as test_a_shorter_plan_is_first,
)
from tests.spark.test_iceberg_races import (
    test_a_shorter_plan_does_not_drop_the_columns_of_a_longer_one as test_columns_stay,
)
from tideline.settings import Warehouse
from tideline_spark.formats.bigquery import table
from tideline_spark.formats.bigquery.access import BigQueryAccess
from tideline_spark.formats.bigquery.columns import BigQueryColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "test_a_longer_plan_is_first",
    "test_a_replay_changes_nothing",
    "test_a_shorter_plan_is_first",
    "test_columns_stay",
]


@pytest.fixture
def history(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> History:
    made = History(tmp_path, place=with_bigquery(request, Warehouse(url=tmp_path.as_uri())))
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new"))
    applied(made, spark)
    return made


def _never(*given: object) -> bool:
    return False


def _unlooked(columns: Any) -> Any:
    access: BigQueryAccess = columns._access
    return access.read()


@pytest.mark.long
def test_a_replay_that_is_applied_again_is_noticed(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_has_applied", _never)
    with pytest.raises(AssertionError):
        test_a_replay_changes_nothing(history, spark)


@pytest.mark.long
def test_columns_that_are_changed_as_they_are_by_now_are_noticed(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BigQueryColumns, "_as_looked", _unlooked)
    with pytest.raises(AssertionError):
        test_columns_stay(history, spark, monkeypatch)
