"""Descriptions of tables in PostgreSQL's stream, and what the catalog is asked about them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from tests.fixtures.capture import PATIENCE_S
from tests.fixtures.services import Database
from tideline_capture.sources.postgres.publication import ensure_publication
from tideline_capture.sources.postgres.replication.pgoutput import Relation, RelationColumn
from tideline_capture.sources.postgres.replication.relations import Relations

INT4 = 23
UNSEEN_S = 0.3
"""Much longer than a look at the catalog takes."""


@pytest.fixture
def relations(database: Database) -> Iterator[Relations]:
    connection = psycopg2.connect(database.dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    ensure_publication(cursor, "p")
    made = Relations(cursor, "p")
    yield made
    made.close()


class Altering:
    """A transaction that added column ``c``, as long as the log has it and nobody sees it."""

    def __init__(self, database: Database) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        self._connection = psycopg2.connect(database.dsn)
        with self._connection.cursor() as cursor:
            cursor.execute("ALTER TABLE t ADD c int NOT NULL DEFAULT 7")
            cursor.execute("SELECT pg_current_xact_id()::text::bigint, 't'::regclass::oid::bigint")
            self.xid, oid = cursor.fetchone() or (0, 0)
        columns = (RelationColumn("id", True, INT4, -1), RelationColumn("c", False, INT4, -1))
        self.relation = Relation(oid, "public", "t", "d", columns)

    def commit(self) -> None:
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def test_a_server_that_ends_the_transaction_late_is_waited_for(
    database: Database, relations: Relations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tideline_capture.sources.postgres.replication.relations._PATIENCE_S", PATIENCE_S
    )
    with closing(Altering(database)) as altering:
        timer = threading.Timer(UNSEEN_S, altering.commit)
        timer.start()
        seen = relations.observe(altering.relation, altering.xid)
        timer.join()
    assert seen.facts is not None
    assert seen.facts.defaults == {"c": "7"}


def test_one_that_nobody_ever_sees_is_waited_for_once(
    database: Database, relations: Relations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for a standby that is away, and describe hundreds of tables. Its ALTER holds a
    lock on this one, which no look at the catalog waits for."""
    monkeypatch.setattr("tideline_capture.sources.postgres.replication.relations._PATIENCE_S", 0.2)
    naps: list[float] = []
    with closing(Altering(database)) as altering:
        assert relations.observe(altering.relation, altering.xid).facts is None
        monkeypatch.setattr(
            "tideline_capture.sources.postgres.replication.relations.time.sleep", naps.append
        )
        assert relations.observe(altering.relation, altering.xid).facts is None
    assert not naps
