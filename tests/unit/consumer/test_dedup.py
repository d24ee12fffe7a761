"""A consumer's log of events, in SQLite; other databases are in tests/publish/test_dedup.py."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from tideline.consumer import forget_seen, make_seen_table, seen


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(tmp_path / "own.db")
    make_seen_table(made)
    make_seen_table(made)
    made.commit()
    return made


def test_an_event_is_new_once(connection: sqlite3.Connection) -> None:
    assert [seen(connection, one) for one in ("1", "2", "1", "1")] == [False, False, True, True]


def test_what_is_rolled_back_was_not_seen(connection: sqlite3.Connection) -> None:
    assert not seen(connection, "1")
    connection.rollback()
    assert not seen(connection, "1")
    connection.commit()
    connection.rollback()
    assert seen(connection, "1")


def test_notes_are_forgotten_by_age(connection: sqlite3.Connection) -> None:
    seen(connection, "old")
    connection.execute("UPDATE tideline_seen SET seen_at = seen_at - 100")
    seen(connection, "young")
    assert forget_seen(connection, timedelta(seconds=50)) == 1
    assert not seen(connection, "old")
    assert seen(connection, "young")


def test_consumers_may_have_tables_of_their_own(connection: sqlite3.Connection) -> None:
    make_seen_table(connection, "main.billing_seen")
    assert not seen(connection, "1")
    assert not seen(connection, "1", "main.billing_seen")


@pytest.mark.parametrize("event_id", ["", "x" * 256, "é" * 128])
def test_an_id_that_does_not_fit_is_refused(connection: sqlite3.Connection, event_id: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        seen(connection, event_id)


def test_a_name_that_is_none_is_refused(connection: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="no plain name"):
        seen(connection, "1", "seen; DROP TABLE orders")


def test_an_unknown_database_is_refused() -> None:
    class Connection:
        def cursor(self) -> object:
            raise AssertionError("it is not asked")

    with pytest.raises(ValueError, match="none of psycopg2"):
        seen(Connection(), "1")
