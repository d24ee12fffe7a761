"""Two runs at once on a real scheduler; every pair of DAGs: `tests/long/test_dag_pairs.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import both_end_well
from tests.airflow.whole_line import WholeLine, whole_line
from tests.fixtures.capture import poll
from tideline.control import ControlClient
from tideline.settings import load_settings

pytestmark = pytest.mark.timeout(2_400)


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[WholeLine]:
    with whole_line(tmp_path_factory.mktemp("beside"), postgres, valkey_server) as made:
        yield made


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
