"""Assets of what others have merged: a real chain and real Delta logs, no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.airflow.task_context import FakeRun, TaskContext
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.settings import as_toml
from tests.unit.planner.test_planner import apply
from tideline_airflow import merge
from tideline_airflow.assets import MERGED, table_asset
from tideline_airflow.compat import AirflowException, AirflowSkipException
from tideline_airflow.merge import MergeOperator

T = "public.orders"


class Merging:
    """A pipeline's merge task and what Airflow keeps of its runs."""

    def __init__(self, history: History, config: Path) -> None:
        self.history = history
        self.xcoms: dict[str, Any] = {}
        self.task = MergeOperator(task_id="merge", config=str(config))

    def run(self, run: FakeRun | None = None) -> list[dict[str, Any]]:
        """Run the task; returns the extras of the table's asset's events."""
        kept = dict(self.xcoms)
        context = TaskContext(self.task, run=run or FakeRun(), xcoms=kept).values
        try:
            self.result = self.task.execute(context)
        finally:
            self.xcoms = kept
        events = context["outlet_events"][MERGED].asset_alias_events
        assert {event.dest_asset_key.uri for event in events} <= {table_asset("shop", T).uri}
        return [event.extra for event in events]

    def merge_elsewhere(self) -> None:
        """A row that is captured and merged, without Airflow."""
        self.history.commit(Row(T, "u", {"id": 1}))
        apply(self.history, self.history.last_number, T)


@pytest.fixture
def merging(tmp_path: Path) -> Merging:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    config = tmp_path / "tideline.toml"
    config.write_text(
        as_toml(
            {
                "pipeline": history.settings.pipeline,
                "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
                "store": {"url": history.settings.store.url},
                "warehouse": {"url": history.settings.warehouse.url},
            }
        )
    )
    made = Merging(history, config)
    made.merge_elsewhere()
    return made


def test_what_a_merger_has_merged_updates_the_asset_once(
    merging: Merging, capfd: pytest.CaptureFixture[str]
) -> None:
    [first] = merging.run()
    assert first["max_seq"] == merging.history.last_seq
    assert merging.result["tables"][T]["outcome"] == "already_applied"
    assert "public.orders was merged by another run" in capfd.readouterr().out
    with pytest.raises(AirflowSkipException):
        merging.run()
    merging.merge_elsewhere()
    [second] = merging.run()
    assert second["max_seq"] == merging.history.last_seq > first["max_seq"]


def test_a_run_without_a_date_hides_no_later_one(merging: Merging) -> None:
    """Where Airflow's database sorts it first it stays the newest of its kind."""
    undated = FakeRun(logical_date=None)
    merging.run(undated)
    merging.merge_elsewhere()
    assert len(merging.run()) == 1
    for run in (undated, FakeRun()):
        with pytest.raises(AirflowSkipException):
            merging.run(run)


def test_a_task_of_named_tables_updates_those_alone(merging: Merging) -> None:
    one = MergeOperator(task_id="merge", config=merging.task.config, tables=[T])
    context = TaskContext(one).values
    with pytest.raises(AirflowSkipException):
        one.execute(context)
    assert context["ti"].xcoms == {}


def test_what_a_failed_task_could_not_tell_is_told_by_the_next(
    merging: Merging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow takes no events of a task that failed."""
    monkeypatch.setattr(merge, "bad", lambda tables: tables)
    with pytest.raises(AirflowException, match="are not merged"):
        merging.run()
    monkeypatch.undo()
    assert len(merging.run()) == 1
