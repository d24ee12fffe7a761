"""The first start of a pipeline: the slot is made once, is nobody else's, and can be given up."""

from __future__ import annotations

import signal

import psycopg2
import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tests.support.checks import check_equal
from tideline.contract.position import PostgresPosition

T = "public.t"
MISCONFIGURED = 2
SLOTS = "FROM pg_replication_slots WHERE database = current_database()"
"""Other tests have theirs on the same server."""


@pytest.fixture
def first(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'v' FROM generate_series(1, 500) g",
    )
    return pipeline_of(database)


def slot_lsn(database: Database) -> str:
    found = database.rows(f"SELECT restart_lsn::text {SLOTS}")
    assert len(found) == 1
    return str(found[0][0])


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
def test_another_store_does_not_take_the_slot(
    first: Pipeline[Database], pipeline_of: PipelineFactory, running: bool
) -> None:
    """The same pipeline with a slip in store.url: its chain is empty, and the slot is not its own.
    Neither is it after a second try."""
    database = first.database
    first.drain()
    worker = first.start() if running else None
    if worker is not None:
        worker.wait_point("reading")
    store = f"{first.settings.store.url}-with-a-slip"
    # The factory's configuration is one file per test: the first one is running, or read already.
    astray = pipeline_of(database, store={"url": store})
    astray_worker = astray.start(until_idle_s=0.5)
    assert astray_worker.wait() == MISCONFIGURED
    assert "store.url" in astray_worker.output()
    again = astray.start(until_idle_s=0.5)
    assert again.wait() == MISCONFIGURED
    database.run("INSERT INTO t VALUES (1000, 'still captured')")
    if worker is not None:
        worker.terminate()
    back = pipeline_of(database, store={"url": first.settings.store.url})
    back.drain()
    check_equal(back.settings, database, [T])


@pytest.mark.parametrize(("point", "count"), [("after-manifest", 1), ("after-manifest", 2)])
def test_killed_while_the_slot_is_made(first: Pipeline[Database], point: str, count: int) -> None:
    """After the manifest that announces it, and after the one that says where it begins."""
    doomed = first.start(kill=f"{point}:{count}")
    assert doomed.wait() == -signal.SIGKILL
    assert doomed.points()[point] == count
    first.drain()
    check_equal(first.settings, first.database, [T])


def test_a_slot_that_was_made_and_not_yet_named_is_made_again(first: Pipeline[Database]) -> None:
    """A worker died between making it and saying so."""
    doomed = first.start(kill="after-manifest:1")
    assert doomed.wait() == -signal.SIGKILL
    assert first.manifest().position == PostgresPosition(1)
    name = f"tideline_{first.settings.pipeline}"
    first.database.run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    before = slot_lsn(first.database)
    first.database.run("INSERT INTO t VALUES (1000, 'later')", "SELECT pg_switch_wal()")
    first.drain()
    assert slot_lsn(first.database) != before
    check_equal(first.settings, first.database, [T])


def test_a_stop_while_the_slot_waits(first: Pipeline[Database]) -> None:
    """Making a slot waits for every transaction that runs; a stop does not wait for that."""
    older = psycopg2.connect(first.database.dsn)
    backend = older.get_backend_pid()
    with older.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1000, 'open')")
    worker = first.start()
    worker.wait_output("making the replication slot")
    control_client = first.control_client()

    def named() -> bool:
        return any(f"process {backend}" in str(status.note) for status in control_client.workers())

    poll("the status says whom it waits for", named)
    worker.terminate()
    control_client.close()
    assert first.database.rows(f"SELECT 1 {SLOTS}") == []
    older.commit()
    older.close()
    first.drain()
    check_equal(first.settings, first.database, [T])
