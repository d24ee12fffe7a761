"""Merges against Google's own BigQuery, for whoever has a project: skipped without one.

``TIDELINE_TEST_BIGQUERY_PROJECT`` names the project, ``TIDELINE_TEST_BIGQUERY_LOCATION`` a location
(``US``); credentials are the application default ones. It makes datasets of names of its own, which
it removes, and is billed for some hundred megabytes. docs/BIGQUERY.md names it as not run by us.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.bigquery_place import use_project
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.skips import NO_BIGQUERY
from tideline.contract.receipt import Outcome
from tideline.planner import applied_state
from tideline.settings import Warehouse
from tideline.settings.bigquery import BigQuerySettings
from tideline.warehouse.bigquery.client import BigQueryPlace, open_client
from tideline.warehouse.bigquery.probe import credentials_kind, probe_new_dataset
from tideline.warehouse.bigquery.removal import owned_targets, remove_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = os.environ.get("TIDELINE_TEST_BIGQUERY_PROJECT")
LOCATION = os.environ.get("TIDELINE_TEST_BIGQUERY_LOCATION", "US")
T = "public.t"
COLUMNS = {"id": "int64", "text": "string", "price": "decimal(20,4)", "at": "timestamp_ntz"}

pytestmark = pytest.mark.skipif(PROJECT is None, reason=NO_BIGQUERY)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Warehouse]:
    """A warehouse whose datasets are removed with the test."""
    prefix = f"tideline_test_{uuid.uuid4().hex[:12]}"
    settings = BigQuerySettings(project=PROJECT, location=LOCATION, dataset_prefix=prefix)
    made = Warehouse(url=tmp_path.as_uri())
    made = made.model_copy(update={"format": "bigquery", "bigquery": settings})
    yield made
    client = open_client(BigQueryPlace.of(made))
    for one in client.list_datasets():
        if one.dataset_id.startswith(prefix):
            client.delete_dataset(one.reference, delete_contents=True, not_found_ok=True)


def row(op: str, key: int, text: str | None = "x") -> Row:
    return Row(T, op, {"id": key, "text": text})


def content(history: History, spark: SparkSession) -> list[tuple[Any, ...]]:
    return [(one["id"], one["text"]) for one in history.rows(spark, T)]


def test_what_the_doctor_tries(place: Warehouse) -> None:
    found = BigQueryPlace.of(place)
    assert credentials_kind(found)
    probe_new_dataset(found, place.bigquery.dataset_prefix)


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mode", ["current", "append", "history", "soft_deletes", "streamed"])
def test_merges(place: Warehouse, spark: SparkSession, tmp_path: Path, mode: str) -> None:
    use_project(spark, place)
    settings = {"writes": "stream"} if mode == "streamed" else {"mode": mode}
    history = History(tmp_path, place=place, tables={T: settings})
    history.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    history.commit(*(row("c", key) for key in (1, 2, 3)))
    assert [one.outcome for one in history.merge(spark).tables] == [Outcome.APPLIED]
    history.commit(row("u", 1, "y"), row("d", 2), row("c", 4, None))
    plan = history.plan()
    (table,) = history.merge(spark).tables
    assert table.outcome is Outcome.APPLIED and table.bytes_billed > 0
    rows = content(history, spark)
    if mode in ("current", "streamed"):
        assert rows == [(1, "y"), (3, "x"), (4, None)]
    from tideline_spark.merge import run_plan  # heavy

    (again,) = run_plan(spark, plan).tables
    assert again.outcome is Outcome.ALREADY_APPLIED
    assert content(history, spark) == rows, "a plan that is run again does nothing"
    assert applied_state(history.settings).tables[T].reason is None


@pytest.mark.timeout(1_800)
def test_all_of_it_is_removed(place: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    use_project(spark, place)
    history = History(tmp_path, place=place)
    history.commit(Shaped(schema_of(T, COLUMNS, ["id"])))
    history.commit(row("c", 1))
    history.merge(spark)
    (owned,) = owned_targets(place, "shop", "one")
    remove_target(place, owned)
    assert list(owned_targets(place, "shop", "one")) == []
