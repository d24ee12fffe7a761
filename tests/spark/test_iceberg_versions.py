"""Iceberg tables that are merged often keep little metadata, and their readers keep their files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Shaped
from tests.spark.orders import ORDERS, SCHEMA, applied, content, order
from tests.spark.test_iceberg import sql_name, stored, target_of
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.names import VERSIONS_SETTING
from tideline.warehouse.state import read_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST = 6


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession) -> History:
    place = with_catalog(Warehouse(url=(tmp_path / "wh").as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, place)
    spark._jsc.sc().conf().set(VERSIONS_SETTING, str(MOST))
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    return made


def snapshots(history: History) -> list[int]:
    return [one.snapshot_id for one in stored(history).metadata.snapshots]


def test_merges_keep_a_bounded_number_of_versions(history: History, spark: SparkSession) -> None:
    """What a reader began on is still there to be read, and what is applied is known."""
    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    applied(history, spark)
    began = stored(history).scan()  # Holds the metadata of the first version.
    first = began.to_arrow().num_rows
    for number in range(2 * MOST):
        history.commit(order("u", 1, f"s{number}"))
        applied(history, spark)
    # At most two hours lie between the first merge and the last.
    assert MOST <= len(snapshots(history)) <= MOST + 3
    assert content(history, spark) == {1: (f"s{2 * MOST - 1}", None), 2: ("new", None)}
    assert began.to_arrow().num_rows == first, "no file is gone"
    assert history.plan().nothing_to_do
    target_of(history, spark).files.vacuum(24.0)
    assert began.to_arrow().num_rows == first, "nor by a vacuum that would leave it"
    assert content(history, spark) == {1: (f"s{2 * MOST - 1}", None), 2: ("new", None)}


def test_a_rollback_to_a_version_that_stayed_goes_on_from_there(
    history: History, spark: SparkSession
) -> None:
    for number in range(2 * MOST):
        history.commit(order("c", number, "new"))
        applied(history, spark)
    oldest = snapshots(history)[0]
    name = sql_name(history).removeprefix("`tideline`.").replace("`", "")
    spark.newSession().sql(
        f"CALL tideline.system.set_current_snapshot('{name}', {oldest})"
    ).collect()
    assert len(content(history, spark)) < 2 * MOST
    app = history.plan().tables[0].app_id
    state = read_target(history.target(ORDERS), app, history.settings.warehouse)
    assert state.applied is not None and state.applied < history.last_number
    applied(history, spark)
    assert set(content(history, spark)) == set(range(2 * MOST))


def test_a_failure_to_drop_versions_is_a_warning(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tideline_spark.formats.iceberg.files import IcebergFiles

    def fails(self: IcebergFiles, metadata: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(IcebergFiles, "drop_versions", fails)
    history.commit(order("c", 1, "new"))
    receipt = applied(history, spark)
    assert "dropping former versions of public.orders" in receipt.warnings[0]
    assert "secret" not in receipt.warnings[0]


def test_a_vacuum_leaves_what_was_the_newest_version_a_moment_ago(
    history: History, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old that is: a reader may have begun on it just before it was replaced."""
    from tideline_spark.formats.iceberg import files

    now = datetime.now(UTC)

    class Clock(datetime):
        """Reads `now`."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return now

    monkeypatch.setattr(files, "datetime", Clock)
    # Iceberg looks at a clock of its own, and refuses to look for files that are too young.
    monkeypatch.setattr(files, "SLACK_HOURS", 480.0)
    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    applied(history, spark)
    began = stored(history).scan()
    merged_at = [datetime.now(UTC)]
    for number in range(2):
        history.commit(order("u", 1, f"s{number}"))
        applied(history, spark)
        merged_at.append(datetime.now(UTC))
    before = snapshots(history)
    # A reader of 24 hours may have begun before the first update, on the version before that.
    now = merged_at[0] + timedelta(hours=24)
    target_of(history, spark).files.vacuum(24.0)
    assert snapshots(history) == before
    assert began.to_arrow().num_rows == 2
    # ... and here between the two, on the first update's, which leaves the version before it old.
    now = merged_at[1] + timedelta(hours=24)
    target_of(history, spark).files.vacuum(24.0)
    assert snapshots(history) == before[1:]
    now = merged_at[2] + timedelta(hours=240)
    target_of(history, spark).files.vacuum(24.0)
    assert snapshots(history) == before[2:]
    assert content(history, spark) == {1: ("s1", None), 2: ("new", None)}
