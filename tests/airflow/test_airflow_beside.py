"""Two runs at once on a real scheduler; every pair of DAGs: `tests/long/test_dag_pairs.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.services.postgres import PostgresServer
from console.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import both_end_well
from tests.airflow.whole_line import WholeLine, whole_line

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
