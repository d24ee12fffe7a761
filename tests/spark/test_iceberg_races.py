"""Two runs that write one Iceberg table at once: Iceberg compares files, and not what the table has
applied, so that runs whose files do not meet have to find each other by the number alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Shaped
from tests.spark.orders import SCHEMA, applied, content, order, run
from tideline.contract.plan import Plan
from tideline.contract.receipt import Outcome, TableReceipt
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOMENTS = ("before", "after")
"""Another run commits before the statement reads the table, or after it has written its files."""


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession) -> History:
    place = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    made.commit(order("c", 1, "new"))
    applied(made, spark)
    return made


def overtaken(
    spark: SparkSession,
    plan: Plan,
    other: Callable[[], object],
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> TableReceipt:
    """Run ``plan``, which ``other`` overtakes when it has read what the table has applied."""
    from tideline_spark.formats.iceberg import table

    has_applied, met = table._has_applied, list[str]()

    def late(*given: Any) -> bool:
        found = has_applied(*given)
        if not met:
            met.append(moment)
            other()
        return found

    monkeypatch.setattr(table, "_has_applied", late)
    receipt = run(spark, plan)
    assert met
    return receipt


def test_a_run_that_a_longer_plan_overtakes_brings_nothing_back(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer one has the same row and its delete: no file of it says that the row was there."""
    history.commit(order("c", 5, "new"))
    short = history.plan()
    history.commit(order("d", 5), order("c", 9, "new"))
    long = history.plan()
    receipt = overtaken(spark, short, lambda: run(spark, long), "before", monkeypatch)
    assert set(content(history, spark)) == {1, 9}
    assert receipt.outcome is Outcome.ALREADY_APPLIED
    assert receipt.applied_manifest == long.to_manifest
