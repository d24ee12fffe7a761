"""Two runs at once on a real scheduler; every pair of DAGs: `tests/long/test_dag_pairs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import both_end_well
from tests.airflow.whole_line import WholeLine, whole_line
from tests.fixtures.capture import poll
from tideline.contract import layout
from tideline.control import ControlClient
from tideline.settings import load_settings

pytestmark = pytest.mark.timeout(2_400)


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[WholeLine]:
    environment = {"TIDELINE_AGGREGATE_SCHEDULE": "merged"}
    folder = tmp_path_factory.mktemp("beside")
    with whole_line(folder, postgres, valkey_server, environment=environment) as made:
        yield made


def rows_of(line: WholeLine, query: str) -> list[tuple[Any, ...]]:
    """The source's answer."""
    with closing(psycopg2.connect(line.dsn)) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def test_a_repair_beside_a_merge(line: WholeLine) -> None:
    both_end_well(line, "merge", "repair")


def test_the_control_form_lists_what_runs(line: WholeLine) -> None:
    """When Airflow has read the file; what is chosen there is done."""
    slow = {"tables": ["public.orders"], "chunk_rows": 1, "delay_ms": 10_000}
    run_id = line.api.trigger("tideline_repair", slow)
    settings = load_settings(line.config)

    def reported() -> bool:
        with closing(ControlClient(settings.control, settings.pipeline)) as control_client:
            return any(
                run_id in dump.request_id for w in control_client.workers() for dump in w.dumps
            )

    poll("the worker tells of it", reported, timeout_s=240)
    line.airflow.run("dags", "reserialize")
    described = line.api.get("dags/tideline_control/details")["params"]["requests"]["schema"][
        "description_md"
    ]
    [listed] = [row for row in described.splitlines() if run_id in row]
    assert listed.endswith("running: `public.orders`"), listed
    request_id = listed.split("`")[1]
    chosen = {"action": "tune", "requests": [request_id, ""], "delay_ms": "0"}
    line.succeeds("tideline_control", line.api.trigger("tideline_control", chosen))
    line.succeeds("tideline_repair", run_id)


def test_documents_follow_merges_and_are_skipped_where_none_has_changed(line: WholeLine) -> None:
    line.run("INSERT INTO items SELECT 17, 99, 'last', placed_at FROM orders WHERE id = 17")
    line.expect_equal()
    expected: dict[int, list[int]] = {one: [] for (one,) in rows_of(line, "SELECT id FROM orders")}
    for order, number in rows_of(line, "SELECT order_id, line FROM items ORDER BY 1, 2"):
        expected.get(order, []).append(number)
    poll("documents are written", lambda: documents(line) == expected, timeout_s=600)
    again = line.api.trigger("tideline_aggregate", {"names": ["order"]})
    line.succeeds("tideline_aggregate", again)
    assert line.api.tasks("tideline_aggregate", again) == {"aggregate": "skipped"}


def documents(line: WholeLine) -> dict[int, list[int]] | None:
    """Each order's lines, as another program reads the aggregate's table; None without one."""
    url = layout.aggregate_url(load_settings(line.config).warehouse.url, "order")
    path = Path(url.removeprefix("file://"))
    if not (path / "_delta_log" / f"{0:020d}.json").exists():
        return None
    query = QueryBuilder().register("t", DeltaTable(path))
    rows = pa.table(query.execute("SELECT id, items FROM t").read_all()).to_pylist()
    return {row["id"]: [one["line"] for one in row["items"]] for row in rows}
