"""A second worker waits, takes over, and fences the first; the chain never forks."""

from __future__ import annotations

import signal
import time

import pytest

from tests.faults.points import taken_over
from tests.fixtures.capture import Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.support.checks import Captured, check_equal, check_history
from tests.support.workload import SCHEMA, TABLES, Workload
from tideline.contract import layout
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import OpenState, TableDump
from tideline.contract.request import DumpRequest
from tideline.control import WorkerStatus
from tideline.store.objects import open_store

TAKEOVER_AFTER_S = 2.0
PATIENT_S = 6.0
"""Where both are alive for a while, and the one that works may be slow."""
GRACE_S = 10.0
"""For a busy machine; `tests/unit/capture/test_leadership.py` has the bound to the second."""
VERSIONED = ("public.accounts", "public.orders", "public.pairs")
CALM = "public.calm"
CALM_ROWS = 1_000
CALM_SCHEMA = (
    "CREATE TABLE calm (id int PRIMARY KEY, v text)",
    "INSERT INTO calm SELECT g, 'v' FROM generate_series(1, 1000) g",
)
"""A table that nobody writes to: what is read of it is a dump."""


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """Its first dump takes 30 chunks, and so a while; one table after the other."""
    database.run(*SCHEMA, *CALM_SCHEMA)
    limits = {"takeover_after_s": TAKEOVER_AFTER_S, "delay_ms": 250, "chunk_rows": 100}
    limits["parallel_dumps_max"] = 1
    return pipeline_of(database, capture=limits)


def test_the_passive_one_takes_over_after_a_kill(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(*SCHEMA, *CALM_SCHEMA)
    shop = pipeline_of(database, capture={"takeover_after_s": PATIENT_S})
    doomed = shop.start()
    shop.wait_state("the first dumps end", lambda s: CALM in s.tables and not s.requests)
    with Workload(database.dsn, seed=11, pause_s=0.01) as traffic, shop.asking() as control_client:
        successor = shop.start()
        assert passive(shop, successor).term == 1
        control_client.ask(DumpRequest("again", (CALM,), chunk_rows=100, delay_ms=2_000))
        shop.wait_state("a part of the dump is durable", lambda state: calm_rows(state) > 0)
        doomed.kill()
        killed_at, last, left = time.time(), shop.manifest(), open_dump(shop.state())
        takeover = taken_over(shop, last)
        shop.hurry()
        assert live(shop, successor).term == 2
        traffic.wait_for(100)
    shop.finish(successor)
    captured = check(shop, terms=[2])
    # It waited long enough after the last sign of life, and not much longer.
    assert written_at(takeover) - written_at(last) >= PATIENT_S
    assert written_at(takeover) - killed_at <= PATIENT_S + GRACE_S
    # It went on with the dump where the first had left it: no row was read twice.
    assert (left.table, 0 < left.rows < CALM_ROWS) == (CALM, True)
    (asked,) = [m for m in captured.manifests if "again" in m.accepted]
    since = {True: 0, False: 0}
    for change in captured.table(CALM):
        if change.seq >= asked.first_seq:
            since[change.seq >= takeover.first_seq] += 1
    assert since == {False: left.rows, True: CALM_ROWS - left.rows}


def test_a_worker_that_slept_is_fenced_when_it_wakes(shop: Pipeline[Database]) -> None:
    """It sleeps with parts uploaded whose manifest it is about to append."""
    with Workload(shop.database.dsn, seed=12, pause_s=0.01) as traffic:
        sleeper = shop.start(stop="between-parts-and-manifest:6")
        sleeper.wait_stopped()
        last = shop.manifest()
        successor = shop.start()
        taken_over(shop, last)
        successor.wait_point("after-manifest", 5)
        sleeper.signal(signal.SIGCONT)
        assert sleeper.wait() == 6, sleeper.output()[-3000:]
        assert "Fenced" in sleeper.output()
        assert "Traceback" not in sleeper.output()
        traffic.wait_for(100)
        reached = successor.points()["after-manifest"]
        successor.wait_point("after-manifest", reached + 3)
        poll(
            "the sleeper's word is withdrawn",
            lambda: [status.pid for status in statuses(shop)] == [successor.pid],
        )
        poll("one reads the slot", lambda: readers(shop) == 1)
    shop.finish(successor)
    captured = check(shop, terms=[2])
    assert len({manifest.writer for manifest in captured.manifests}) == 2
    assert shop.manifest().released


def test_a_clean_stop_hands_over_to_the_one_that_waits(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(*SCHEMA, *CALM_SCHEMA)
    shop = pipeline_of(database, capture={"takeover_after_s": 600.0})
    with Workload(database.dsn, seed=13, pause_s=0.01) as traffic:
        first = shop.start()
        first.wait_point("after-manifest", 3)
        successor = shop.start()
        passive(shop, successor)
        first.terminate()
        live(shop, successor)
        traffic.wait_for(50)
    shop.finish(successor)
    captured = check(shop, terms=[2])
    released = [m.manifest_number for m in captured.manifests if m.released]
    taken = [m.manifest_number for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert released == [taken[0] - 1, captured.manifests[-1].manifest_number]


def check(shop: Pipeline[Database], *, terms: list[int]) -> Captured:
    """Source and chain are equal; the chain is one, and its terms are these after the first."""
    captured = check_equal(shop.settings, shop.database, [*TABLES, CALM])
    check_history(captured, ledger="public.ledger", versioned=VERSIONED)
    assert [m.term for m in captured.manifests if m.kind is ManifestKind.TAKEOVER] == terms
    first = layout.manifest_key(shop.settings.pipeline, 1)
    keys = open_store(shop.settings.store).list(first.rpartition("/")[0])
    numbers = [manifest.manifest_number for manifest in captured.manifests]
    assert keys == [layout.manifest_key(shop.settings.pipeline, number) for number in numbers]
    return captured


def written_at(manifest: Manifest) -> float:
    assert manifest.written_at_us is not None
    return manifest.written_at_us / 1e6


def statuses(shop: Pipeline[Database]) -> list[WorkerStatus]:
    with shop.asking() as control_client:
        return control_client.workers()


def passive(shop: Pipeline[Database], worker: WorkerProcess) -> WorkerStatus:
    """What ``worker`` says of itself once it waits while another is live."""
    found: list[WorkerStatus] = []

    def says_so() -> bool:
        seen = {status.state: status for status in statuses(shop)}
        found[:] = [seen[state] for state in ("passive", "live") if state in seen]
        return len(found) == 2

    poll("one worker is live and one is passive", says_so)
    assert found[0].pid == worker.pid
    assert found[0].term == found[1].term
    return found[0]


def live(shop: Pipeline[Database], worker: WorkerProcess) -> WorkerStatus:
    """What ``worker`` says of itself once it is the one that reads."""
    found: list[WorkerStatus] = []

    def says_so() -> bool:
        seen = statuses(shop)
        found[:] = [s for s in seen if s.pid == worker.pid and s.state == "live"]
        return bool(found)

    poll("the successor is live", says_so)
    return found[0]


def open_dumps(state: OpenState) -> list[TableDump]:
    return [dump for item in state.requests for dump in item.dumps if dump.state == "running"]


def calm_rows(state: OpenState) -> int:
    return sum(dump.rows for dump in open_dumps(state) if dump.table == CALM)


def open_dump(state: OpenState) -> TableDump:
    dumps = open_dumps(state)
    assert len(dumps) == 1, "no dump is open"
    return dumps[0]


def readers(shop: Pipeline[Database]) -> int:
    """How many processes read the pipeline's slot."""
    query = "SELECT count(active_pid) FROM pg_replication_slots WHERE database = current_database()"
    return int(shop.database.rows(query)[0][0])
