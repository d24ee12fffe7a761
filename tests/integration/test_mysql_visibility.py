"""A chunk of MySQL or MariaDB never takes a value back, with marks that are written and without."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.mysql_readers import reading_only
from tests.fixtures.mysql_servers import (
    Flavour,
    MysqlDatabase,
    ServerFactory,
    make_mysql_database,
)
from tests.support.checks import check_equal, read_chain, stale_changes
from tideline.contract.request import DumpRequest, RequestState

KEYS = 2000
WRITERS = 8
AGAIN_MAX = 40
SCHEMA = (
    "CREATE TABLE hot (id INT PRIMARY KEY, ver BIGINT NOT NULL)",
    f"INSERT INTO hot VALUES {', '.join(f'({key}, 0)' for key in range(1, KEYS + 1))}",  # noqa: S608
)


@contextmanager
def writers(database: MysqlDatabase, *, keys: int, pause_s: float) -> Iterator[None]:
    """Clients that count up random ones of the first ``keys`` keys."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        chosen = random.Random(number)
        connection = database.connect()
        try:
            with connection.cursor() as cursor:
                while not stopping.wait(pause_s):
                    key = chosen.randint(1, keys)
                    cursor.execute("UPDATE hot SET ver = ver + 1 WHERE id = %s", (key,))
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


@dataclass(frozen=True, slots=True)
class Heat:
    """Which keys are written to and read: the first ``keys``, each read ``rounds`` times by one of
    ``requests``, and by as many again and again until it is enough."""

    keys: int = KEYS
    rounds: int = 5
    pause_s: float = 0.001
    requests: int = 4


def dumped_while_hot(
    database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    *,
    enough: Callable[[Pipeline[MysqlDatabase]], bool],
    read_only: bool,
    blind: bool = False,
    heat: Heat = Heat(),
) -> Pipeline[MysqlDatabase]:
    """The table was dumped, and then its first keys asked for in many chunks, under writers. A
    ``blind`` worker waits for nothing between mark and chunk."""
    database.run(*SCHEMA)
    table = f"{database.name}.hot"
    source = reading_only(database) if read_only else {}
    if blind:
        source = {**source, "xa": "refuse"}
    hot = pipeline_of(database, source=source, capture={"chunk_rows": 32})
    with writers(database, keys=heat.keys, pause_s=heat.pause_s):
        worker = hot.start(blind=blind)
        hot.wait_state("the first dump ends", lambda s: table in s.tables and not s.requests)
        asked = tuple((str(key),) for _ in range(heat.rounds) for key in range(1, heat.keys + 1))
        for number in range(heat.requests * AGAIN_MAX):
            request = DumpRequest(f"hot-{number}", (table,), keys=asked, chunk_rows=heat.keys)
            answer = hot.ask(request)
            assert answer.state is RequestState.DONE, answer
            if (number + 1) % heat.requests == 0 and enough(hot):
                break
    worker.terminate()
    return hot


@pytest.mark.parametrize("read_only", [False, True], ids=["marks", "read-only"])
@pytest.mark.parametrize("sync_binlog", [0, 1])
def test_no_chunk_row_of_a_hot_table_is_stale(
    mysql_database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    read_only: bool,
    sync_binlog: int,
) -> None:
    table = f"{mysql_database.name}.hot"
    mysql_database.server.run(f"SET GLOBAL sync_binlog = {sync_binlog}")
    try:
        hot = dumped_while_hot(
            mysql_database,
            pipeline_of,
            # How many rows a chunk gives up to changes depends on how fast the writers are.
            enough=lambda hot: hot.rows_of("r") > 3 * KEYS and hot.rows_of("u") > 300,
            read_only=read_only,
        )
        hot.drain()
    finally:
        mysql_database.server.run("SET GLOBAL sync_binlog = 0")
    changes = check_equal(hot.settings, mysql_database, [table]).table(table)
    dumped = sum(change.op == "r" for change in changes)
    updated = sum(change.op == "u" for change in changes)
    print(f"rows of chunks {dumped}, updates {updated}")
    assert dumped > 3 * KEYS
    assert updated > 300
    assert stale_changes(changes) == []


@pytest.mark.long
@pytest.mark.parametrize("flavour", ["mysql8"])
def test_without_the_order_of_commits_values_go_back(
    flavour: Flavour, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
) -> None:
    """What the tests above would find, if the server did not keep its order, and nobody looked. It
    takes keys that are hot, and luck: a chunk must hit the moment between a commit's place in the
    log and its being visible. Large groups of commits make that longer."""
    server, table = mysql_database.server, f"{mysql_database.name}.hot"
    server.run(
        "SET GLOBAL sync_binlog = 1",
        "SET GLOBAL binlog_group_commit_sync_delay = 1000",
        "SET GLOBAL binlog_order_commits = OFF",
    )
    try:
        hot = dumped_while_hot(
            mysql_database,
            pipeline_of,
            enough=lambda hot: bool(stale_changes(read_chain(hot.settings).table(table))),
            read_only=False,
            blind=True,
            heat=Heat(keys=WRITERS, rounds=100, pause_s=0, requests=1),
        )
    finally:
        server.run(
            "SET GLOBAL sync_binlog = 0",
            "SET GLOBAL binlog_group_commit_sync_delay = 0",
            "SET GLOBAL binlog_order_commits = ON",
        )
    assert stale_changes(read_chain(hot.settings).table(table))


@pytest.mark.parametrize("flavour", ["mysql8"])
class TestOrderOfCommitsOff:
    """Where the log's order says nothing of what is visible, no dump is right."""

    FIX = "SET GLOBAL binlog_order_commits = ON"

    def test_at_the_start(
        self, flavour: Flavour, mysql_database: MysqlDatabase, pipeline_of: PipelineFactory
    ) -> None:
        mysql_database.run(*SCHEMA)
        hot = pipeline_of(mysql_database)
        mysql_database.server.run("SET GLOBAL binlog_order_commits = OFF")
        try:
            worker = hot.start()
            assert worker.wait() == 2, worker.output()
        finally:
            mysql_database.server.run(self.FIX)
        assert "Misconfigured" in worker.output()
        assert "binlog_order_commits = ON" in worker.output()

    @pytest.mark.parametrize("read_only", [False, True], ids=["marks", "read-only"])
    def test_during_a_dump(
        self,
        flavour: Flavour,
        mysql_database: MysqlDatabase,
        pipeline_of: PipelineFactory,
        read_only: bool,
    ) -> None:
        mysql_database.run(*SCHEMA)
        source = reading_only(mysql_database) if read_only else {}
        hot = pipeline_of(mysql_database, source=source, capture={"chunk_rows": 32, "delay_ms": 20})
        worker = hot.start(stop="between-chunks:5")
        worker.wait_stopped()
        mysql_database.server.run("SET GLOBAL binlog_order_commits = OFF")
        worker.signal(signal.SIGCONT)
        try:
            assert worker.wait() == 2, worker.output()
        finally:
            mysql_database.server.run(self.FIX)
        assert "Misconfigured" in worker.output()
        assert self.FIX in worker.output()
        hot.drain()
        check_equal(hot.settings, mysql_database, [f"{mysql_database.name}.hot"])


@pytest.mark.parametrize("flavour", ["mariadb", "mysql9"])
class TestCommitThatIsNotVisibleYet:
    """A transaction that the log has sent, and that nobody can see: the server waits for a
    semi-synchronous replica that does not exist. Watermarks that are written wait behind it."""

    def test_the_chunk_waits_for_it(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        hot, table = self.dumped(flavour, start_server, pipeline_of)
        worker = hot.start()
        with invisible_commit(hot.database):
            wait_captured(hot)
            control_client = hot.control_client()
            control_client.ask(DumpRequest("again", (table,), chunk_rows=KEYS))
            worker.wait_point("between-chunks")
            time.sleep(1)
            answer = control_client.answer("again")
            assert answer is None or not answer.state.final
            control_client.close()
        assert hot.ask(DumpRequest("again", (table,))).state is RequestState.DONE
        worker.terminate()
        captured = check_equal(hot.settings, hot.database, [table])
        assert sum(change.op == "r" for change in captured.table(table)) == 2 * KEYS
        assert stale_changes(captured.table(table)) == []

    def test_without_the_rule_its_value_is_taken_back(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> None:
        hot, table = self.dumped(flavour, start_server, pipeline_of)
        worker = hot.start(blind=True)
        with invisible_commit(hot.database):
            wait_captured(hot)
            answer = hot.ask(DumpRequest("again", (table,), chunk_rows=KEYS))
            assert answer.state is RequestState.DONE
        worker.terminate()
        assert len(stale_changes(read_chain(hot.settings).table(table))) == 1
        with pytest.raises(AssertionError, match="differs"):
            check_equal(hot.settings, hot.database, [table])

    def dumped(
        self, flavour: Flavour, start_server: ServerFactory, pipeline_of: PipelineFactory
    ) -> tuple[Pipeline[MysqlDatabase], str]:
        database = make_mysql_database(start_server(flavour), flavour)
        database.run(*SCHEMA)
        hot = pipeline_of(database, source=reading_only(database), capture={"chunk_rows": KEYS})
        hot.drain()
        return hot, f"{database.name}.hot"


def wait_captured(hot: Pipeline[MysqlDatabase]) -> None:
    poll("the commit is in the chain", lambda: hot.rows_of("u") > 0)


@contextmanager
def invisible_commit(database: MysqlDatabase) -> Iterator[None]:
    """A row's new value is in the log, and visible only when the context ends."""
    name = "rpl_semi_sync_master"
    if database.flavour != "mariadb":
        name = "rpl_semi_sync_source"
        database.server.run(f"INSTALL PLUGIN {name} SONAME 'semisync_source.so'")
    database.server.run(
        f"SET GLOBAL {name}_timeout = 600000",
        f"SET GLOBAL {name}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL {name}_enabled = ON",
    )
    commit = threading.Thread(
        target=database.run, args=("UPDATE hot SET ver = ver + 1 WHERE id = 7",)
    )
    commit.start()
    try:
        time.sleep(0.2)
        assert commit.is_alive(), "the server waits for nobody"
        yield
    finally:
        database.server.run(f"SET GLOBAL {name}_enabled = OFF")
        commit.join()
