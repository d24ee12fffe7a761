"""Real servers under faults, judged by the same oracle as simulated runs: the short form.

``make faults`` is the long one, with every point and every trouble.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from devtools.services.s3 import S3Server
from devtools.simulation.history import RunHistory
from devtools.simulation.oracle import check
from tests.faults.rewired import on_s3, port_of
from tests.faults.rounds import BRISK, Stage, Verdict, play
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tests.support.ledger import TABLES, LedgerWork, MariadbLedger, PostgresLedger
from tests.support.proxy import Proxy

CHOSEN = (
    "kill between-parts-and-manifest",
    "kill inside-select",
    "freeze manifest-unanswered",
    "cut source",
    "stall store",
    "kill inside-transaction",
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_postgres(
    database: Database, pipeline_of: PipelineFactory, s3: S3Server, stack: ExitStack
) -> None:
    work = PostgresLedger(database, seed=1, pause_s=0.02)
    judge(staged(stack, work, pipeline_of, s3, prefix="public."))


@pytest.mark.parametrize("flavour", ["mariadb"])
def test_mariadb(
    mysql_database: MysqlDatabase, pipeline_of: PipelineFactory, s3: S3Server, stack: ExitStack
) -> None:
    work = MariadbLedger(mysql_database, seed=2, pause_s=0.02)
    judge(staged(stack, work, pipeline_of, s3, prefix=f"{mysql_database.name}."))


def staged(
    stack: ExitStack, work: LedgerWork, pipeline_of: PipelineFactory, s3: S3Server, *, prefix: str
) -> Stage:
    """The ledger's tables, and a pipeline of them with the store on S3."""
    work.set_up()
    source = {"tables": [f"{prefix}{name}" for name in TABLES]}
    pipeline: Pipeline[Any] = pipeline_of(
        work.database, source=source, capture=BRISK, store=on_s3(s3)
    )
    ports = {"source": port_of(str(work.database.source["url"])), "store": s3.port}
    proxies: Mapping[str, Proxy] = {
        section: stack.enter_context(Proxy(port)) for section, port in ports.items()
    }
    return Stage(pipeline, work, prefix, proxies)


def judge(stage: Stage) -> None:
    verdict = play(stage, CHOSEN, seed=3)
    print(dict(verdict.counts))
    assert verdict.violations == [], [str(one) for one in verdict.violations[:10]]
    assert all(verdict.counts[name] == 1 for name in CHOSEN)
    assert stage.work.counts["rollbacks"] > 0
    assert stage.work.counts["savepoints"] > 0
    assert_it_can_fail(verdict)


def assert_it_can_fail(verdict: Verdict) -> None:
    """One event fewer in the chain, one row fewer in the warehouse: the oracle says so."""
    history = verdict.reported.history
    assert letters(without_an_event(history)) >= {"L", "G"}
    commit = history.commits[-1]
    poorer = replace(commit, rows=commit.rows[1:])
    assert "L" in letters(replace(history, commits=(*history.commits[:-1], poorer)))


def without_an_event(history: RunHistory) -> RunHistory:
    place, manifest = next(
        (place, manifest)
        for place, manifest in enumerate(history.manifests)
        if any(not event.dumped for event in manifest.events)
    )
    one = next(event for event in manifest.events if not event.dumped)
    poorer = replace(manifest, events=tuple(e for e in manifest.events if e is not one))
    manifests = (*history.manifests[:place], poorer, *history.manifests[place + 1 :])
    return replace(history, manifests=manifests)


def letters(history: RunHistory) -> set[str]:
    return {violation.check for violation in check(history)}
