"""A chunk never takes a value back, although a commit can be in the log before it is visible."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest

from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import IDLE_S, PATIENCE_S, Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tests.support.checks import check_equal, read_chain, stale_changes
from tideline.contract.request import DumpRequest, RequestState

HOT = "public.hot"
KEYS = 250
WRITERS = 8
CHUNK_ROWS_MIN = 20_000
UPDATES_MIN = 1_000
DUMPS = 20
DUMPS_MAX = 200
SCHEMA = (
    "CREATE TABLE hot (id int PRIMARY KEY, ver bigint NOT NULL)",
    "INSERT INTO hot SELECT g, 0 FROM generate_series(1, 250) g",
)


@contextmanager
def writers(database: Database) -> Iterator[None]:
    """Clients that count up random keys; every other one does not wait for the disk."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        chosen = random.Random(number)
        connection = psycopg2.connect(database.dsn)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET synchronous_commit = {('on', 'off')[number % 2]}")
                while not stopping.is_set():
                    key = chosen.randint(1, KEYS)
                    cursor.execute("UPDATE hot SET ver = ver + 1 WHERE id = %s", (key,))
                    connection.commit()
                    stopping.wait(0.002)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert not failures


def test_no_chunk_row_of_a_hot_table_is_stale(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(*SCHEMA)
    hot = pipeline_of(database, capture={"chunk_rows": KEYS})
    worker = hot.start()
    hot.wait_state("the first dump ends", lambda s: HOT in s.tables and not s.requests)
    rounds = CHUNK_ROWS_MIN // KEYS // 2
    keys = tuple((str(key),) for _ in range(rounds) for key in range(1, KEYS + 1))
    with writers(database):
        # How many rows a chunk gives up to changes depends on how fast the writers are.
        for number in range(DUMPS_MAX):
            answer = hot.ask(DumpRequest(f"hot-{number}", (HOT,), keys=keys, chunk_rows=KEYS))
            assert answer.state is RequestState.DONE, answer
            if met(hot, CHUNK_ROWS_MIN):
                break
    worker.terminate()
    hot.drain()
    captured = check_equal(hot.settings, database, [HOT])
    changes = captured.table(HOT)
    assert sum(change.op == "r" for change in changes) >= CHUNK_ROWS_MIN
    assert sum(change.op == "u" for change in changes) > UPDATES_MIN
    assert stale_changes(changes) == []


def test_no_row_of_chunks_that_are_read_ahead_is_stale(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(*SCHEMA)
    hot = pipeline_of(database, capture={"chunk_rows": 10})
    worker = hot.start()
    with writers(database):
        for number in range(DUMPS_MAX):
            answer = hot.ask(DumpRequest(f"dump-{number}", (HOT,)))
            assert answer.state is RequestState.DONE, answer
            assert answer.tables[0].chunks > KEYS // 10
            if number >= DUMPS - 1 and met(hot, DUMPS * KEYS // 2):
                break
    worker.terminate()
    hot.drain()
    changes = check_equal(hot.settings, database, [HOT]).table(HOT)
    assert sum(change.op == "r" for change in changes) >= DUMPS * KEYS // 2
    assert sum(change.op == "u" for change in changes) > UPDATES_MIN
    assert stale_changes(changes) == []


def met(hot: Pipeline[Database], rows_min: int) -> bool:
    """Whether dumps have brought so many rows, and the writers have changed enough meanwhile."""
    return hot.rows_of("r") >= rows_min and hot.rows_of("u") > UPDATES_MIN


class TestCommitThatIsNotVisibleYet:
    """A transaction whose commit the log has, and that every snapshot still shows as running.

    It waits for a standby that does not exist, and its process is stopped before that wait is
    lifted for everybody else.
    """

    def test_the_chunk_waits_for_it(
        self, own_postgres: PostgresServer, own_database: Database, pipeline_of: PipelineFactory
    ) -> None:
        hot = self.dumped(own_database, pipeline_of)
        worker = hot.start()
        with self.invisible_commit(own_postgres, own_database) as backend:
            self.wait_captured(hot)
            control_client = hot.control_client()
            control_client.ask(DumpRequest("again", (HOT,)))

            def named() -> bool:
                answer = control_client.answer("again")
                reasons = [table.waiting for table in answer.tables] if answer else []
                return any(f"process {backend}" in str(reason) for reason in reasons)

            poll("the answer names what the dump waits for", named)
            control_client.close()
        assert hot.ask(DumpRequest("again", (HOT,))).state is RequestState.DONE
        worker.terminate()
        captured = check_equal(hot.settings, own_database, [HOT])
        assert stale_changes(captured.table(HOT)) == []

    def test_without_the_rule_its_value_is_taken_back(
        self, own_postgres: PostgresServer, own_database: Database, pipeline_of: PipelineFactory
    ) -> None:
        hot = self.dumped(own_database, pipeline_of)
        worker = hot.start(blind=True)
        with self.invisible_commit(own_postgres, own_database):
            self.wait_captured(hot)
            assert hot.ask(DumpRequest("again", (HOT,))).state is RequestState.DONE
        worker.terminate()
        stale = stale_changes(read_chain(hot.settings).table(HOT))
        assert len(stale) == 1
        with pytest.raises(AssertionError, match="differs"):
            check_equal(hot.settings, own_database, [HOT])

    def dumped(self, database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
        database.run(*SCHEMA)
        hot = pipeline_of(database)
        worker = hot.start(until_idle_s=IDLE_S)
        assert worker.wait() == 0, worker.output()[-3000:]
        return hot

    def wait_captured(self, hot: Pipeline[Database]) -> None:
        poll("the commit is in the chain", lambda: hot.rows_of("u") > 0)

    @contextmanager
    def invisible_commit(self, server: PostgresServer, database: Database) -> Iterator[int]:
        """Yields the process that commits; it ends its transaction with the context."""
        standbys = "ALTER SYSTEM SET synchronous_standby_names"
        connection = psycopg2.connect(database.dsn)
        backend = connection.get_backend_pid()
        database.run(f"{standbys} = 'nobody'", "SELECT pg_reload_conf()")
        commit = self.waiting_commit(connection, database)
        try:
            os.kill(backend, signal.SIGSTOP)
            database.run(f"{standbys} = ''", "SELECT pg_reload_conf()")
            yield backend
        finally:
            os.kill(backend, signal.SIGCONT)
            commit.join()
            connection.close()

    def waiting_commit(self, connection: Any, database: Database) -> threading.Thread:
        """Commits until one waits: a setting that was reloaded comes into force a little later."""
        waits = "SELECT 1 FROM pg_stat_activity WHERE pid = %d AND wait_event = 'SyncRep'"
        waiting = waits % connection.get_backend_pid()
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE hot SET ver = ver + 1 WHERE id = 7")
            commit = threading.Thread(target=connection.commit)
            commit.start()
            while commit.is_alive():
                if database.rows(waiting):
                    return commit
        raise AssertionError("no commit ever waited for a standby")
