"""A real Airflow beside a real merger: tasks start no Spark, and lose nothing where either dies."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import change, trigger
from tests.airflow.whole_line import WholeLine, whole_line
from tests.fixtures.capture import poll
from tests.long.test_mergers import PATIENCE_S, Merger
from tideline.contract import layout
from tideline.control.merger import MergerClient, MergerStatus

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_000)]

REPAIR = "tideline_repair"


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[WholeLine]:
    folder = tmp_path_factory.mktemp("beside")
    with whole_line(folder, postgres, valkey_server) as made:
        yield made


@pytest.fixture
def merger(line: WholeLine, tmp_path: Path) -> Iterator[Merger]:
    made = Merger(line.config, tmp_path / "merger")
    poll("it has a session", lambda: state(line) == "merging", timeout_s=PATIENCE_S)
    yield made
    made.end()
    poll("it is gone", lambda: status(line) is None, timeout_s=PATIENCE_S)


def status(line: WholeLine) -> MergerStatus | None:
    with closing(MergerClient(line.settings.control, line.settings.pipeline)) as client:
        return client.status()


def state(line: WholeLine) -> str | None:
    found = status(line)
    return None if found is None else found.state


def has_a_tasks_plan(line: WholeLine) -> bool:
    """Whether the merger runs a plan that it has not made itself."""
    found, pipeline = status(line), line.settings.pipeline
    plans = () if found is None else found.plans
    return any(not layout.is_mergers(layout.plan_key(pipeline, one)) for one in plans)


def merged_by(line: WholeLine, run_id: str) -> str:
    return line.api.log(REPAIR, run_id, "merge")


def test_a_repair_is_merged_by_the_merger(line: WholeLine, merger: Merger) -> None:
    drawn = random.Random(1)
    change(line, drawn)
    runs = [trigger(line, "repair", drawn) for _ in range(2)]
    change(line, drawn)
    for run_id in runs:
        line.succeeds(REPAIR, run_id)
        # The merger may have merged what it asked for before it planned: then it has nothing to do.
        log = merged_by(line, run_id)
        assert "this task starts no Spark" in log or "nothing to merge" in log, log
        assert "what spark-submit printed" not in log, log
    line.expect_equal()


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
def test_a_merger_that_dies_under_a_repair(line: WholeLine, merger: Merger, point: str) -> None:
    """Its session is killed at a commit, and then it is: the task does the work itself."""
    drawn = random.Random(point)
    run_id = trigger(line, "repair", drawn)
    poll("it has the plan", lambda: has_a_tasks_plan(line), timeout_s=PATIENCE_S, pause_s=0.02)
    change(line, drawn)
    merger.arm(signal.SIGKILL, point)
    merger.end()
    line.succeeds(REPAIR, run_id)
    line.expect_equal()


def test_a_task_that_is_cleared_while_its_plan_is_run(line: WholeLine, merger: Merger) -> None:
    drawn = random.Random(3)
    run_id = trigger(line, "repair", drawn)
    poll("it has the plan", lambda: has_a_tasks_plan(line), timeout_s=PATIENCE_S, pause_s=0.02)
    line.api.clear(REPAIR, run_id, "merge")
    line.succeeds(REPAIR, run_id)
    change(line, drawn)
    line.expect_equal()
