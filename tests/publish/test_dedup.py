"""A consumer's log of events in PostgreSQL, MySQL and MariaDB: two consumers of one event, and a
consumer that is killed anywhere while events are delivered again and again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.fixtures.mysql_servers import MysqlDatabase
from tests.fixtures.services import Database
from tideline.consumer import forget_seen, make_seen_table, seen

ROOT = Path(__file__).resolve().parents[2]
Connect = Callable[[], Any]
KINDS = ("postgres", "mariadb")
EVENTS = 40


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Connections to a database of this test, which do not commit by themselves; the log is made
    in it."""
    if request.param == "postgres":
        database: Database = request.getfixturevalue("database")
        made: Connect = lambda: psycopg2.connect(database.dsn)  # noqa: E731
    else:
        mysql: MysqlDatabase = request.getfixturevalue("mysql_database")
        made = lambda: mysql.connect(autocommit=False)  # noqa: E731
    with closing(made) as connection:
        make_seen_table(connection)
        make_seen_table(connection)
        connection.commit()
    return made


mariadb_alone = pytest.mark.parametrize("flavour", ["mariadb"])


@contextmanager
def closing(connect: Connect) -> Iterator[Any]:
    connection = connect()
    try:
        yield connection
    finally:
        connection.close()


@mariadb_alone
@pytest.mark.usefixtures("flavour")
def test_an_event_is_new_once_and_a_rollback_takes_the_note_along(connect: Connect) -> None:
    with closing(connect) as connection:
        assert [seen(connection, one) for one in ("1", "A", "a", "1")] == [
            False,
            False,
            False,
            True,
        ]
        connection.rollback()
        assert not seen(connection, "1")
        connection.commit()
        # The transaction goes on after an event that was seen.
        assert seen(connection, "1")
        assert not seen(connection, "2")
        connection.commit()
        assert seen(connection, "2")


@mariadb_alone
@pytest.mark.usefixtures("flavour")
def test_notes_are_forgotten_by_age(connect: Connect) -> None:
    with closing(connect) as connection:
        seen(connection, "old")
        connection.cursor().execute(
            "UPDATE tideline_seen SET seen_at = seen_at - interval '100' second"
        )
        seen(connection, "young")
        assert forget_seen(connection, timedelta(seconds=50.5)) == 1
        connection.commit()
        assert not seen(connection, "old")
        assert seen(connection, "young")


@mariadb_alone
@pytest.mark.usefixtures("flavour")
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_of_two_consumers_waits_for_what_becomes_of_the_first(
    connect: Connect, commits: bool
) -> None:
    found: list[bool] = []

    def work() -> None:
        with closing(connect) as other:
            found.append(seen(other, "1"))
            other.commit()

    with closing(connect) as first:
        assert not seen(first, "1")
        second = threading.Thread(target=work)
        second.start()
        second.join(0.3)
        assert found == []
        first.commit() if commits else first.rollback()
        second.join(60)
    assert found == [commits]


CONSUMER = """
import sys
{connect}
from tideline.consumer import seen
connection = connect()
for event in map(str.strip, sys.stdin):
    print(event, flush=True)  # It has it, whatever becomes of it.
    if not seen(connection, event):
        connection.cursor().execute("UPDATE account SET balance = balance + 1")
    connection.commit()
"""


def test_effects_are_there_once_whoever_is_killed(database: Database) -> None:
    connect = f"import psycopg2\nconnect = lambda: psycopg2.connect({database.dsn!r})"
    with closing(lambda: psycopg2.connect(database.dsn)) as connection:
        make_seen_table(connection)
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE account (balance int)")
        cursor.execute("INSERT INTO account VALUES (0)")
        connection.commit()
        draws = random.Random(1)
        for at in [*(draws.randint(1, EVENTS) for _ in range(8)), None]:
            consume(connect, at)
        cursor.execute("SELECT balance FROM account")
        assert cursor.fetchone() == (EVENTS,)


def consume(connect: str, at: int | None) -> None:
    """Deliver all events to a consumer, and kill it when it has ``at`` of them."""
    consumer = subprocess.Popen(
        [sys.executable, "-c", CONSUMER.replace("{connect}", connect)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with consumer:
        assert consumer.stdin is not None
        assert consumer.stdout is not None
        consumer.stdin.write("".join(f"{number}\n" for number in range(EVENTS)))
        consumer.stdin.close()
        for had, _ in enumerate(consumer.stdout, 1):
            if had == at:
                consumer.kill()
    # One that is killed late may have come to its end.
    assert consumer.returncode in ({0} if at is None else {0, -signal.SIGKILL})
