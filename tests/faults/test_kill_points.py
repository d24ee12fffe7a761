# ruff: noqa: S608  statements are made of constants
"""A worker dies, or sleeps, at every named point while traffic runs; the next one goes on.

One pipeline lives through a batch of points: each round's worker takes over from that of the round
before. At the end everything is in the chain, once, and every request has ended.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.faults import mysql_workload
from tests.faults.points import POINTS, Point, Round, ended_well, kill_at, taken_over, wake
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tests.support import workload
from tests.support.checks import check_equal, check_history
from tests.support.traffic import Traffic
from tideline.contract.manifest import ManifestKind

BRISK = {
    "heartbeat_s": 0.3,
    "takeover_after_s": 0.6,
    "batch_rows_max": 200,
    "request_claim_s": 0.5,
    "chunk_rows": 100,
}
"""No two workers run at the same time, but for one that is about to learn that it is fenced: so
nobody is taken for dead who is only slow."""
HUGE_ROWS = 6_000
LOG = [point for point in POINTS if point.need in ("nothing", "huge transaction")]
DUMP = [point for point in POINTS if point.need in ("dump", "stop")]
BATCHES = [pytest.param([*LOG, POINTS[0]], id="log"), pytest.param(DUMP, id="dump")]
"""The first point comes twice: with and without a chain that was there before."""
SIGNALS = [
    pytest.param(signal.SIGKILL, id="killed"),
    pytest.param(signal.SIGSTOP, id="frozen"),
]


@dataclass(frozen=True, slots=True)
class Shop:
    """A pipeline with traffic: ``prefix`` is that of its tables' names in the chain."""

    pipeline: Pipeline[Any]
    traffic: Callable[[], Traffic]
    prefix: str
    tables: tuple[str, ...]
    huge: str

    def write_huge(self) -> None:
        self.pipeline.database.run(self.huge)

    def check(self) -> None:
        names = [f"{self.prefix}{name}" for name in (*self.tables, "huge")]
        captured = check_equal(self.pipeline.settings, self.pipeline.database, names)
        versioned = [f"{self.prefix}{name}" for name in ("accounts", "orders", "pairs")]
        check_history(captured, ledger=f"{self.prefix}ledger", versioned=versioned)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("points", BATCHES)
def test_postgres(
    database: Database, pipeline_of: PipelineFactory, points: list[Point], number: signal.Signals
) -> None:
    database.run(*workload.SCHEMA, "CREATE TABLE huge (id bigserial PRIMARY KEY, v text)")
    shop = Shop(
        pipeline_of(database, capture=BRISK),
        lambda: workload.Workload(database.dsn, seed=1, pause_s=0.02),
        "public.",
        ("accounts", "ledger", "orders", "pairs"),
        f"INSERT INTO huge (v) SELECT 'v' FROM generate_series(1, {HUGE_ROWS})",
    )
    outlive(shop, points, number)


@pytest.mark.long
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("points", BATCHES)
@pytest.mark.parametrize("flavour", ["mariadb"])
def test_mariadb(
    mysql_database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    points: list[Point],
    number: signal.Signals,
) -> None:
    create = "CREATE TABLE huge (id BIGINT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)"
    mysql_database.run(*mysql_workload.SCHEMA, create)
    shop = Shop(
        pipeline_of(mysql_database, capture=BRISK),
        lambda: mysql_workload.MysqlWorkload(mysql_database, seed=1, pause_s=0.02),
        f"{mysql_database.name}.",
        mysql_workload.NAMES,
        f"INSERT INTO huge (v) SELECT REPEAT('v', 900) FROM seq_1_to_{HUGE_ROWS}",
    )
    outlive(shop, points, number)


def outlive(shop: Shop, points: list[Point], number: signal.Signals) -> None:
    """Round after round, and what holds after all of them."""
    pipeline, rounds, frozen = shop.pipeline, list[Round](), list[Round]()
    with shop.traffic() as traffic:
        for point in points:
            begun = time.monotonic()
            done = kill_at(
                pipeline,
                point,
                number,
                table=f"{shop.prefix}orders",
                write_huge=shop.write_huge,
            )
            rounds.append(done)
            while frozen:
                wake(frozen.pop())
            if number is signal.SIGSTOP:
                frozen.append(done)
            print(f"{point.name:28} {time.monotonic() - begun:.2f} s")
        successor = pipeline.start()
        for before in rounds:
            taken_over(pipeline, before.last)
        while frozen:
            wake(frozen.pop())
        for done in rounds:
            if done.request is not None:
                ended_well(pipeline, done.request)
        traffic.wait_for(20)
    successor.terminate()
    pipeline.drain()
    assert traffic.counts["rollbacks"] > 0
    takeovers = [m for m in pipeline.manifests() if m.kind is ManifestKind.TAKEOVER]
    assert len(takeovers) == len(points) + 1
    shop.check()
