"""The catalog as rounds read it: without a lock, and telling whenever a gap was possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import psycopg2
import pytest

from tests.fixtures.postgres_partitions import GOOD_PARTITIONS, SPOILED_PARTITIONS
from tests.fixtures.services import Database
from tideline.contract.errors import Misconfigured, Unavailable
from tideline.contract.schema import TableId
from tideline_capture.core.facts import CatalogRound, TableFacts
from tideline_capture.sources.postgres.catalog.tables import list_tables
from tideline_capture.sources.postgres.catalog.watch import PostgresWatch
from tideline_capture.sources.postgres.publication import OPTIONS, ensure_publication
from tideline_capture.sources.postgres.types import PINNED
from tideline_capture.sources.watermark_key import WatermarkKey

TABLE = "public.t"


@pytest.fixture
def watch(database: Database) -> Iterator[PostgresWatch]:
    settings = {**PINNED, "statement_timeout": "60000", "lock_timeout": "300"}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    connection = psycopg2.connect(database.dsn, options=options)
    connection.autocommit = True
    with connection.cursor() as cursor:
        ensure_publication(cursor, "p")
    made = PostgresWatch(
        connection, key=WatermarkKey("inc"), publication="p", slot="s", include=("*.*",), exclude=()
    )
    yield made
    made.close()


def look(watch: PostgresWatch) -> dict[str, TableFacts]:
    rounds: list[CatalogRound] = []
    watch.round(rounds.append)
    return {facts.table: facts for facts in rounds[0].tables}


@contextmanager
def held(database: Database, statement: str) -> Iterator[None]:
    """``statement`` in a transaction that stays open."""
    connection = psycopg2.connect(database.dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield
    finally:
        connection.rollback()
        connection.close()


def published(database: Database) -> set[str]:
    return {row[0] for row in database.rows("SELECT tablename FROM pg_publication_tables")}


class TestLocks:
    """A round that waits for a lock ends the session, and its log reader with it."""

    @pytest.mark.parametrize(
        "statement",
        [
            "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
            "ALTER TABLE t ALTER COLUMN v TYPE bigint",
            "TRUNCATE t",
            "DROP TABLE t",
            "LOCK TABLE low IN ACCESS EXCLUSIVE MODE",
        ],
    )
    def test_a_round_waits_for_none(
        self, database: Database, watch: PostgresWatch, statement: str
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        )
        before = look(watch)
        with held(database, statement):
            assert look(watch) == before

    def test_a_new_table_that_is_locked_waits_for_the_next_round(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        with held(database, "LOCK TABLE t IN ACCESS EXCLUSIVE MODE"):
            assert "could not be added" in str(look(watch)[TABLE].problem)
        facts = look(watch)[TABLE]
        assert facts.problem is None and facts.membership


class TestPublication:
    def test_a_table_is_added_and_known_as_added(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE keyless (v int)")
        found = look(watch)
        assert found[TABLE].membership
        assert found["public.keyless"].membership == ""
        assert published(database) == {"t"}
        database.run("CREATE TABLE later (id int PRIMARY KEY)")
        assert look(watch)["public.later"].membership
        assert look(watch)[TABLE] == found[TABLE], "another one that joins changes nothing here"

    def test_one_that_was_out_of_it_is_not_the_same_afterwards(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        before = look(watch)[TABLE]
        database.run("ALTER PUBLICATION p DROP TABLE t", "ALTER PUBLICATION p ADD TABLE t")
        after = look(watch)[TABLE]
        assert after.membership and after.catalog != before.catalog

    def test_a_publication_that_was_recreated_is_another(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        before = look(watch)[TABLE]
        database.run("DROP PUBLICATION p", f"CREATE PUBLICATION p FOR TABLE t WITH ({OPTIONS})")
        assert look(watch)[TABLE].catalog != before.catalog

    def test_one_that_is_gone_begins_the_session_again(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "DROP PUBLICATION p")
        with pytest.raises(Unavailable, match="dropped"):
            look(watch)

    def test_one_that_published_less_for_a_while_is_stopped_and_remembered(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        before = look(watch)[TABLE]
        database.run("ALTER PUBLICATION p SET (publish = 'insert')")
        with pytest.raises(Misconfigured) as raised:
            look(watch)
        database.run(str(raised.value.hint))
        assert look(watch)[TABLE].catalog != before.catalog

    def test_whole_schemas(self, database: Database, watch: PostgresWatch) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "ALTER PUBLICATION p ADD TABLES IN SCHEMA public",
        )
        before = look(watch)[TABLE]
        assert before.membership and before.problem is None
        rows = database.rows("SELECT count(*) FROM pg_publication_rel")
        assert rows == [(0,)], "it need not be added by itself"

    @pytest.mark.parametrize("narrow", ["t (id)", "t WHERE (id > 5)"])
    def test_one_that_leaves_something_out_is_not_good_enough(
        self, database: Database, watch: PostgresWatch, narrow: str
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v int)", f"ALTER PUBLICATION p ADD TABLE {narrow}"
        )
        assert "leaves out" in str(look(watch)[TABLE].problem)

    def test_tables_that_inherit_are_not_added_with_their_parent(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        """They have no key: the application's own updates of them would fail."""
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "CREATE TABLE child () INHERITS (t)",
            "INSERT INTO child VALUES (1)",
        )
        look(watch)
        assert published(database) == {"t"}
        database.run("UPDATE child SET id = 2")

    def test_partitions_are(self, database: Database, watch: PostgresWatch) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        )
        assert look(watch)[TABLE].membership
        assert published(database) == {"t"}

    def test_a_problem_of_one_table_is_not_lost_when_another_joins(
        self, database: Database, watch: PostgresWatch
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE z (id int PRIMARY KEY)")
        with held(database, "LOCK TABLE t IN ACCESS EXCLUSIVE MODE"):
            found = look(watch)
        assert "could not be added" in str(found[TABLE].problem)
        assert found["public.z"].membership


IDENTITIES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "primary key": ("CREATE TABLE t (b int, a int, PRIMARY KEY (b, a))", ("b", "a")),
    "in its own order": ("CREATE TABLE t (b int, a int, PRIMARY KEY (a, b))", ("a", "b")),
    "index": (
        "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL UNIQUE);"
        " ALTER TABLE t REPLICA IDENTITY USING INDEX t_b_key",
        ("b",),
    ),
    "full": (
        "CREATE TABLE t (a int PRIMARY KEY, b int); ALTER TABLE t REPLICA IDENTITY FULL",
        ("a",),
    ),
    "full without a key": (
        "CREATE TABLE t (a int); ALTER TABLE t REPLICA IDENTITY FULL",
        None,
    ),
    "nothing": (
        "CREATE TABLE t (a int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
        None,
    ),
    "deferrable": ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)", None),
    "only unique": ("CREATE TABLE t (a int NOT NULL UNIQUE)", None),
    "included columns": ("CREATE TABLE t (a int, b int, PRIMARY KEY (a) INCLUDE (b))", ("a",)),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_the_key_is_the_replica_identity(
    database: Database, watch: PostgresWatch, name: str
) -> None:
    statement, key = IDENTITIES[name]
    database.run(statement)
    facts = look(watch)[TABLE]
    assert (facts.schema.key if facts.schema else None) == key
    wanted = database.rows("SELECT pg_get_replica_identity_index('t')")[0][0]
    assert (wanted is not None) == (key is not None and name != "full")


@pytest.mark.parametrize(
    ("statements", "captured"),
    [
        *((statements, False) for statements in SPOILED_PARTITIONS),
        *((statements, True) for statements in GOOD_PARTITIONS),
    ],
)
def test_partitions_are_logged_by_the_key_of_the_whole_table(
    database: Database, watch: PostgresWatch, statements: str, captured: bool
) -> None:
    database.run(*statements.split("; "))
    facts = look(watch)[TABLE]
    assert (facts.problem is None) == captured
    assert captured or "another than the key" in str(facts.problem)


@pytest.mark.parametrize(
    "kind", ["mood[]", "moods", "moody", "mood_range", "mood_multirange", "mood_range[]"]
)
def test_labels_count_wherever_they_are(
    database: Database, watch: PostgresWatch, kind: str
) -> None:
    """A renamed label changes values of arrays, ranges and rows of it too, and no row event."""
    database.run(
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN moods AS mood[]",
        "CREATE TYPE moody AS (m mood, n int)",
        "CREATE TYPE mood_range AS RANGE (subtype = mood, multirange_type_name = mood_multirange)",
        f"CREATE TABLE t (id int PRIMARY KEY, m {kind})",
        "CREATE TABLE alone (id int PRIMARY KEY)",
    )
    before = look(watch)[TABLE]
    database.run("ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'")
    after = look(watch)[TABLE]
    assert before.members != after.members


def test_every_partition_counts(database: Database, watch: PostgresWatch) -> None:
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (90) PARTITION BY RANGE (id)",
        "CREATE TABLE high_1 PARTITION OF high FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE alone (id int PRIMARY KEY)",
    )
    seen = [look(watch)[TABLE].members]
    for statement in (
        "CREATE TABLE high_2 PARTITION OF high FOR VALUES FROM (20) TO (30)",
        "TRUNCATE high_1",
        "ALTER TABLE t DETACH PARTITION low",
        "ALTER TABLE t ATTACH PARTITION low FOR VALUES FROM (0) TO (10)",
    ):
        database.run(statement)
        seen.append(look(watch)[TABLE].members)
    assert all(a != b for a, b in pairwise(seen))
    assert seen[-1] != seen[0]


def test_what_a_truncating_transaction_does_to_columns_is_told(
    database: Database, watch: PostgresWatch
) -> None:
    """Its new rows may have been rewritten with other values, without row events."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    look(watch)
    filled = "TRUNCATE t; INSERT INTO t SELECT g, g FROM generate_series(1, 3) g"
    reported = []
    for more in (
        "",
        "; ALTER TABLE t ALTER COLUMN v TYPE int USING v * 2",
        "",
        "; ALTER TABLE t ADD COLUMN u uuid DEFAULT gen_random_uuid()",
        "; SAVEPOINT s; ALTER TABLE t ALTER COLUMN v TYPE int USING v * 2; RELEASE s"
        "; ALTER TABLE t SET (fillfactor = 90)",
    ):
        database.run(f"BEGIN; {filled}{more}; COMMIT")
        reported.append(look(watch)[TABLE].columns_too)
    assert reported == [False, True, False, True, True]


def test_a_round_sees_one_moment(
    database: Database, watch: PostgresWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ALTER that commits while it reads is seen as a whole, or not at all."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int)")
    before = look(watch)[TABLE]
    listed = list_tables

    def list_then_alter(*args: Any) -> dict[int, TableId]:
        found = listed(*args)
        database.run("ALTER TABLE t ALTER COLUMN v TYPE bigint")
        return found

    monkeypatch.setattr(
        "tideline_capture.sources.postgres.catalog.watch.list_tables", list_then_alter
    )
    assert look(watch)[TABLE] == before
    monkeypatch.undo()
    after = look(watch)[TABLE]
    assert after.storage != before.storage and after.columns != before.columns


def test_a_round_reports_a_snapshot_of_its_time(database: Database, watch: PostgresWatch) -> None:
    rounds: list[CatalogRound] = []
    with held(database, "SELECT pg_current_xact_id()"):
        watch.round(rounds.append)
    snapshot: Any = rounds[0].snapshot
    assert snapshot.xmin <= snapshot.xmax
    assert len(snapshot.running) >= 1 or snapshot.xmin == snapshot.xmax
