"""The worker is killed at a named point while traffic runs; its successor goes on from there."""

from __future__ import annotations

import signal

import pytest

from tests.faults.checks import check_equal, check_history
from tests.faults.workload import SCHEMA, TABLES, Workload
from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tideline.contract.manifest import ManifestKind

VERSIONED = ("public.accounts", "public.orders", "public.pairs")


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline:
    database.run(*SCHEMA)
    return pipeline_of(database)


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("before-part-put", 6),
        ("between-parts-and-manifest", 6),
        ("after-manifest", 6),
        ("between-marks", 4),
        ("between-chunks", 4),
    ],
)
def test_killed_at_a_point(shop: Pipeline, point: str, count: int) -> None:
    with Workload(shop.database.dsn, seed=1) as traffic:
        doomed = shop.start(kill=f"{point}:{count}")
        assert doomed.wait() == -signal.SIGKILL, doomed.output()[-3000:]
        assert doomed.points()[point] == count
        killed_at = shop.manifest()
        assert not killed_at.released
        successor = shop.start(until_idle_s=IDLE_S)
        traffic.wait_for(300)
        successor.wait_point("after-manifest", 3)
    assert successor.wait() == 0, successor.output()[-3000:]
    captured = check_equal(shop.settings, shop.database, TABLES)
    check_history(captured, ledger="public.ledger", versioned=VERSIONED)
    takeovers = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert takeovers[0].manifest_number == killed_at.manifest_number + 1
    assert traffic.counts["rollbacks"] > 0
