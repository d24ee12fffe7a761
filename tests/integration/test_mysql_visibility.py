"""A chunk of MySQL or MariaDB never takes a value back, with marks that are written and without."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.checks import check_equal, stale_changes
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.mysql_readers import reading_only
from tests.fixtures.mysql_servers import MysqlDatabase
from tideline.contract.request import DumpRequest, RequestState

KEYS = 2000
WRITERS = 8
ROUNDS = 20
SCHEMA = (
    "CREATE TABLE hot (id INT PRIMARY KEY, ver BIGINT NOT NULL)",
    f"INSERT INTO hot VALUES {', '.join(f'({key}, 0)' for key in range(1, KEYS + 1))}",
)


@contextmanager
def writers(database: MysqlDatabase, *, pause_s: float = 0.001) -> Iterator[None]:
    """Clients that count up random keys."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def write(number: int) -> None:
        chosen = random.Random(number)
        connection = database.connect()
        try:
            with connection.cursor() as cursor:
                while not stopping.wait(pause_s):
                    key = chosen.randint(1, KEYS)
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


def dumped_while_hot(
    database: MysqlDatabase,
    pipeline_of: PipelineFactory,
    *,
    read_only: bool,
    blind: bool = False,
    rounds: int = ROUNDS,
    pause_s: float = 0.001,
) -> Pipeline[MysqlDatabase]:
    """The table was dumped, and then all of its keys asked for ``rounds`` times, under writers."""
    database.run(*SCHEMA)
    table = f"{database.name}.hot"
    source = reading_only(database) if read_only else {}
    hot = pipeline_of(database, source=source, capture={"chunk_rows": 32})
    with writers(database, pause_s=pause_s):
        worker = hot.start(blind=blind)
        hot.wait_state("the first dump ends", lambda s: table in s.tables and not s.requests)
        keys = tuple((str(key),) for _ in range(rounds) for key in range(1, KEYS + 1))
        answer = hot.ask(DumpRequest("hot", (table,), keys=keys, chunk_rows=KEYS))
        assert answer.state is RequestState.DONE, answer
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
        hot = dumped_while_hot(mysql_database, pipeline_of, read_only=read_only)
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
