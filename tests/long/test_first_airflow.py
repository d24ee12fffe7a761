"""An Airflow of one's own: the wheels, the README's few lines, and a browser.

Of the demo nothing is taken but how Airflow's processes are started: neither its folder of plugins
nor the environment of the tests, no Spark connection, no jars. Every page is kept under
``.run/screenshots``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from devtools.services.chromium import find_chromium
from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.browser import AirflowPages, Values, airflow_pages
from tests.airflow.whole_line import WholeLine, whole_line
from tests.fixtures.installed import ROOT, install
from tideline.settings import load_settings

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_400)]

SCREENSHOTS = ROOT / ".run" / "screenshots"
NO_CHROMIUM = "Chromium cannot be had on this machine"
DAMAGE = {"orders": {"note": "'damaged'"}, "items": {"what": "NULL"}, "people": {"age": "-1"}}


@dataclass
class ControlThread:
    """A line of the wheels, and a browser on its Airflow."""

    line: WholeLine
    pages: AirflowPages
    airflow_bin: Path

    def succeeds(self, dag_id: str, values: Values) -> str:
        """Trigger by form; the id of the run, which succeeded."""
        run_id = self.pages.trigger(dag_id, values)
        self.line.succeeds(dag_id, run_id)
        return run_id

    def damage(self, table: str, rows: str) -> None:
        """Overwrite ``rows`` of the warehouse's ``table``, as a foreign hand would; it is no longer
        equal then."""
        folder = Path(load_settings(self.line.config).warehouse.url.removeprefix("file://"))
        target = DeltaTable(folder / "public" / table)
        done = target.update(predicate=rows, updates=DAMAGE[table])
        assert done["num_updated_rows"] > 0
        assert not self.line.found().equal


@pytest.fixture(scope="module")
def control_thread(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[ControlThread]:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(NO_CHROMIUM)
    folder = tmp_path_factory.mktemp("first")
    installed = install(folder)
    dags = folder / "dags"
    dags.mkdir()
    shutil.copy(ROOT / "dags" / "tideline_dags" / "pipeline.py", dags)
    own = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "no-plugins"),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
    }
    with whole_line(
        folder,
        postgres,
        valkey_server,
        bin_folder=installed.airflow,
        worker_bin=installed.worker,
        environment=own,
    ) as line:
        shutil.rmtree(SCREENSHOTS, ignore_errors=True)
        with airflow_pages(line.airflow, chromium, SCREENSHOTS) as pages:
            yield ControlThread(line, pages, installed.airflow)


def test_doctor_finds_nothing_amiss(control_thread: ControlThread) -> None:
    done = subprocess.run(
        [control_thread.airflow_bin / "tideline", "doctor", "--airflow"],
        env=control_thread.line.airflow.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_merge(control_thread: ControlThread) -> None:
    control_thread.line.run(
        "UPDATE orders SET note = 'by hand' WHERE id <= 3", "DELETE FROM people"
    )
    assert not control_thread.line.found().equal
    run_id = control_thread.succeeds("tideline_merge", {})
    shown = control_thread.pages.log("tideline_merge", run_id, "merge")
    assert any("start and end of Spark took" in line for line in shown), shown
    control_thread.line.expect_equal()


@pytest.mark.parametrize(
    ("table", "rows", "values"),
    [
        ("orders", "id IN (17, 18)", {"keys": "17\n18"}),
        ("people", "name IN ('Smith, 5', 'Smith, 17')", {"keys": "Smith, 5\n\nSmith, 17\n"}),
        (
            "items",
            "order_id = 17 AND line = 2 OR order_id IN (18, 19) AND line = 1",
            {"keys": '17,2\n["18","1"]\n"19", "1"'},
        ),
        ("orders", "id >= 100 AND id < 150", {"key_from": "100", "key_to": "150"}),
        (
            "items",
            "order_id = 30 AND line = 2 OR order_id = 31",
            {"key_from": "30,2", "key_to": "32"},
        ),
        (
            "orders",
            "placed_at >= '2026-03-05' AND placed_at < '2026-03-06'",
            {"time_column": "placed_at", "time_from": "2026-03-05", "time_to": "2026-03-06"},
        ),
    ],
    ids=["keys", "texts as keys", "composite keys", "range", "composite range", "range of time"],
)
def test_a_repair(control_thread: ControlThread, table: str, rows: str, values: Values) -> None:
    control_thread.line.run(
        "INSERT INTO people SELECT 'Smith, ' || n, n, now() FROM generate_series(1, 20) n"
        " ON CONFLICT DO NOTHING"
    )
    control_thread.line.merge()
    control_thread.damage(table, rows)
    control_thread.succeeds(
        "tideline_repair", {"tables": f"public.{table}", **values, "chunk_rows": "50"}
    )
    assert control_thread.line.found().equal, control_thread.line.found()


def test_a_week_is_backfilled_by_days(control_thread: ControlThread) -> None:
    control_thread.line.merge()
    control_thread.damage("orders", "placed_at >= '2026-03-02' AND placed_at < '2026-03-09'")
    runs = control_thread.pages.backfill(
        "tideline_backfill",
        date(2026, 3, 2),
        date(2026, 3, 8),
        {"tables": "public.orders", "column": "placed_at"},
    )
    assert len(runs) == 7
    for run_id in runs:
        control_thread.line.succeeds("tideline_backfill", run_id)
    assert control_thread.line.found().equal, control_thread.line.found()


@pytest.mark.parametrize(
    ("dag_id", "values"),
    [
        ("tideline_verify", {"tables": "public.*"}),
        ("tideline_rebuild", {"table": "public.items"}),
        ("tideline_rebuild", {"table": "public.people", "mode": "current"}),
        ("tideline_maintain", {"tables": "public.orders\npublic.items"}),
        ("tideline_control", {"action": "tune", "all": True, "delay_ms": "0"}),
    ],
)
def test_every_other_form(control_thread: ControlThread, dag_id: str, values: Values) -> None:
    control_thread.succeeds(dag_id, values)
    control_thread.line.expect_equal()


def test_a_mistyped_key_is_named_by_its_line(control_thread: ControlThread) -> None:
    """Where it failed, and before anything that is folded."""
    keys = "17,2\n\n18"
    run_id = control_thread.pages.trigger(
        "tideline_repair", {"tables": "public.items", "keys": keys}
    )
    assert control_thread.line.api.wait("tideline_repair", run_id, timeout_s=600) == "failed"
    assert control_thread.line.api.tasks("tideline_repair", run_id)["ask"] == "failed"
    shown = control_thread.pages.log("tideline_repair", run_id, "ask")
    [reason, *_] = [line for line in shown if "ERROR" in line]
    assert "line 3" in reason, shown
