"""Every pair of the eight DAGs at once, on a real scheduler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.services.postgres import PostgresServer
from devtools.services.valkey import ValkeyServer
from tests.airflow.dag_pairs import PAIRS, both_end_well
from tests.airflow.whole_line import WholeLine, whole_line

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_400)]


@pytest.fixture(scope="module")
def line(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresServer,
    valkey_server: ValkeyServer,
) -> Iterator[WholeLine]:
    with whole_line(tmp_path_factory.mktemp("pairs"), postgres, valkey_server) as made:
        yield made


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_both_end_well(line: WholeLine, first: str, second: str) -> None:
    both_end_well(line, first, second)
