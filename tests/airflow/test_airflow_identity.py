from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tideline.contract.request import DumpRequest, check_request
from tideline_airflow.identity import TaskIdentity

STARTED = datetime(2026, 11, 21, 12, 0, 0, 5, tzinfo=UTC)
ONE = TaskIdentity("tideline_repair", "manual__2026-11-21T12:00:00+00:00_x", "ask", started=STARTED)


def test_the_name_reads_like_the_task() -> None:
    expected = "tideline_repair/manual__2026-11-21T12:00:00+00:00_x/ask@20261121T120000.000005"
    assert ONE.name == expected


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, dag_id="d"),
        replace(ONE, run_id="r"),
        replace(ONE, task_id="t"),
        replace(ONE, map_index=0),
        replace(ONE, clears=1),
        replace(ONE, started=datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)),
    ],
)
def test_every_part_of_the_identity_tells(other: TaskIdentity) -> None:
    assert other.name != ONE.name


@pytest.mark.parametrize("run_id", ["ночной прогон", "x" * 250, "a b", "-x", "_", "a\nb"])
def test_any_run_id_makes_a_lawful_request_id(run_id: str) -> None:
    name = replace(ONE, run_id=run_id).name
    check_request(DumpRequest(name, ("public.orders",)))
    assert name != replace(ONE, run_id=run_id + "y").name
