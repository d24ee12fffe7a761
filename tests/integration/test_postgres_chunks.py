"""Chunks read from a real server: every row once, whatever its key, width or lock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest

from tests.fixtures.capture import PATIENCE_S, poll
from tests.fixtures.services import Database
from tideline.settings import make_settings
from tideline_capture.core.chunks import Chunk, ChunkFailed, ChunkOrder
from tideline_capture.sources.postgres.connect import connect
from tideline_capture.sources.postgres.snapshot.chunks import CopyChunkReader
from tideline_capture.sources.postgres.types import PINNED
from tideline_capture.sources.watermark_key import WatermarkKey

TABLE = "public.t"


@pytest.fixture
def reader(database: Database) -> Iterator[CopyChunkReader]:
    made = make_reader(database)
    yield made
    made.close()


def make_reader(database: Database, *, lock_timeout_s: float = 0.2) -> CopyChunkReader:
    return CopyChunkReader(
        _connection(database),
        _connection(database),
        key=WatermarkKey("inc"),
        publication="p",
        lock_timeout_s=lock_timeout_s,
        fence_timeout_s=5.0,
    )


def _connection(database: Database) -> Any:
    options = " ".join(f"-c {name}={value}" for name, value in PINNED.items())
    connection = psycopg2.connect(database.dsn, options=options)
    connection.autocommit = True
    return connection


def order(**fields: Any) -> ChunkOrder:
    values = {"rows_max": 3, "bytes_max": 1 << 20, **fields}
    return ChunkOrder("token", "r", TABLE, **values)


def read(reader: CopyChunkReader, **fields: Any) -> Chunk:
    fetched = reader.fetch(order(**fields), lambda reason: None)
    assert not isinstance(fetched, ChunkFailed), fetched
    chunk, reported = fetched.decode(), fetched.read
    assert (reported.token, reported.last_key, reported.complete) == (
        chunk.token,
        chunk.last_key,
        chunk.complete,
    )
    return chunk


def failed(reader: CopyChunkReader, **fields: Any) -> ChunkFailed:
    chunk = reader.fetch(order(**fields), lambda reason: None)
    assert isinstance(chunk, ChunkFailed)
    return chunk


def read_all(reader: CopyChunkReader, **fields: Any) -> list[Chunk]:
    chunks = [read(reader, **fields)]
    while not chunks[-1].complete:
        last = chunks[-1].last_key
        assert last is not None
        chunks.append(read(reader, after_key=last, **fields))
        assert len(chunks) < 100
    return chunks


def values(chunks: list[Chunk], column: str) -> list[object]:
    return [value for chunk in chunks for value in chunk.batch.column(column).to_pylist()]


@contextmanager
def other_session(database: Database, statement: str) -> Iterator[None]:
    """``statement`` in a transaction that stays open."""
    connection = psycopg2.connect(database.dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
        yield
    finally:
        connection.rollback()
        connection.close()


def cancel_waiting(database: Database) -> None:
    """Cancel the statement that waits for the table, once there is one."""
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted"
        " AND relation = 't'::regclass"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    poll("a statement waits for the table", lambda: bool(database.rows(cancel)))


KEYS = {
    "bigint": "k bigint PRIMARY KEY|(-5), (0), (1), (7), (9223372036854775807)",
    "text": "k text PRIMARY KEY|(''), ('a'), ('B'), ('ä'), ('z,\"q\"\n'), ('Z')",
    "varchar": "k varchar(4) PRIMARY KEY|('a'), ('B'), ('c'), ('D'), ('e')",
    "char": "k char(3) PRIMARY KEY|('a'), ('B'), ('c'), ('D'), ('e')",
    "C collation": "k text COLLATE \"C\" PRIMARY KEY|('a'), ('B'), ('c'), ('D'), ('e')",
    "citext": "k citext PRIMARY KEY|('a'), ('B'), ('c'), ('D'), ('e'), ('F'), ('g')",
    "domain over citext": "k mail PRIMARY KEY|('a'), ('B'), ('c'), ('D'), ('e'), ('F')",
    "mixed operators": "n int, k citext, PRIMARY KEY (n, k)"
    "|(1, 'b'), (1, 'A'), (1, 'c'), (2, 'B'), (2, 'a'), (3, 'D'), (3, 'c')",
    "mixed, other way": "k citext, n int, PRIMARY KEY (k, n)"
    "|('b', 1), ('A', 1), ('A', 2), ('B', 2), ('c', 2), ('D', 3), ('c', 3)",
    "enum": "k mood PRIMARY KEY|('sad'), ('ok'), ('happy'), ('angry')",
    "numeric": "k numeric PRIMARY KEY|(-1.5), (0), (1.10), (1e20), ('Infinity'), ('NaN')",
    "double": "k float8 PRIMARY KEY|(-1e300), (0.1), (0.30000000000000004), (1e-300), ('NaN')",
    "timestamptz": "k timestamptz PRIMARY KEY"
    "|('2024-01-01 00:00:00.000001+02'), ('2024-01-01'), ('1999-12-31'), ('9999-12-31')",
    "bytea": r"k bytea PRIMARY KEY|('\x'), ('\x00'), ('\xff'), ('\x0001'), ('\x27')",
    "uuid": "k uuid PRIMARY KEY|" + ", ".join(f"(md5('{n}')::uuid)" for n in range(5)),
    "array": "k int[] PRIMARY KEY|('{}'), ('{1}'), ('{1,2}'), ('{NULL}'), ('{2}')",
    "three columns": "k text, b int, c date, PRIMARY KEY (c, k, b)|"
    + ", ".join(f"('{a}', {b}, '2024-01-0{c}')" for a in "xY" for b in (1, 2) for c in (1, 2)),
}


@pytest.mark.parametrize("name", KEYS)
def test_paging_by_any_key_brings_every_row_once(
    database: Database, reader: CopyChunkReader, name: str
) -> None:
    columns, _, rows = KEYS[name].partition("|")
    database.run(
        "CREATE EXTENSION citext",
        "CREATE DOMAIN mail AS citext",
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'angry')",
        f"CREATE TABLE t ({columns})",
        f"INSERT INTO t VALUES {rows}",  # noqa: S608
    )
    chunks = read_all(reader, rows_max=2)
    key = columns.partition("PRIMARY KEY (")[2].rstrip(")") or "k"
    wanted = database.rows(f"SELECT count(*) FROM t GROUP BY {key}")  # noqa: S608
    rows_read = sum(chunk.batch.num_rows for chunk in chunks)
    assert rows_read == len(wanted)
    keys = [row for chunk in chunks for row in map(str, chunk.batch.to_pylist())]
    assert len(set(keys)) == len(keys)


class TestWidth:
    def test_a_last_row_with_a_huge_text(self, database: Database, reader: CopyChunkReader) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT g, repeat('x', 300000) FROM generate_series(1, 4) g",
        )
        assert values(read_all(reader, rows_max=2, bytes_max=1 << 30), "id") == [1, 2, 3, 4]

    def test_what_is_cut_off_comes_in_the_next_chunk(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 40) g",
        )
        chunks = read_all(reader, rows_max=20, bytes_max=5000)
        assert values(chunks, "id") == list(range(1, 41))
        assert {chunk.batch.num_rows for chunk in chunks[:-1]} == {5}

    def test_narrow_rows_after_wide_ones_fill_chunks_again(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT g, repeat('x', CASE WHEN g < 9 THEN 5000 ELSE 1 END)"
            " FROM generate_series(1, 200) g",
        )
        chunks = read_all(reader, rows_max=64, bytes_max=5000)
        assert values(chunks, "id") == list(range(1, 201))
        assert max(chunk.batch.num_rows for chunk in chunks) == 64

    def test_given_keys_are_never_cut_off(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 16) g",
        )
        left = tuple((str(key),) for key in range(1, 18))
        found: list[object] = []
        missing: list[object] = []
        while left:
            chunk = read(reader, keys=left, bytes_max=3000)
            assert 0 < chunk.keys_read <= len(left) and chunk.missing is not None
            found += values([chunk], "id")
            missing += chunk.missing.column("id").to_pylist()
            left = left[chunk.keys_read :]
        assert (sorted(map(str, found)), missing) == (sorted(map(str, range(1, 17))), [17])


class TestWhatIsRead:
    def test_rows_of_a_table_that_inherits_are_not_its_parents(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY)",
            "CREATE TABLE child () INHERITS (t)",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO child VALUES (2)",
        )
        assert values(read_all(reader), "id") == [1]

    def test_rows_of_partitions_are_their_roots(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10)",
            "CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20)",
            "INSERT INTO t VALUES (1), (11)",
        )
        assert values(read_all(reader), "id") == [1, 11]

    def test_a_missing_key_that_its_type_cannot_hold_is_left_out(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run("CREATE TABLE t (id date PRIMARY KEY)")
        chunk = read(reader, keys=(("infinity",), ("2024-01-01",)))
        assert chunk.missing is not None
        assert [str(day) for day in chunk.missing.column("id").to_pylist()] == ["2024-01-01"]


class TestFailures:
    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT 1",
            "CREATE VIEW t AS SELECT 1 AS id",
            "CREATE MATERIALIZED VIEW t AS SELECT 1 AS id",
            "CREATE SEQUENCE t",
        ],
        ids=["nothing", "a view", "a materialized view", "a sequence"],
    )
    def test_no_table_of_that_name(
        self, database: Database, reader: CopyChunkReader, statement: str
    ) -> None:
        database.run(statement)
        assert not failed(reader).retry

    def test_a_locked_table_is_tried_again(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        with other_session(database, "LOCK TABLE t IN ACCESS EXCLUSIVE MODE"):
            assert failed(reader).retry
        assert read(reader).complete

    def test_a_cancelled_statement_is_tried_again(self, database: Database) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        patient = make_reader(database, lock_timeout_s=PATIENCE_S)
        with (
            other_session(database, "LOCK TABLE t IN ACCESS EXCLUSIVE MODE"),
            ThreadPoolExecutor(1) as pool,
        ):
            cancelled = pool.submit(cancel_waiting, database)
            reported = failed(patient)
            cancelled.result()
        assert reported.retry and "57014" in reported.error
        assert read(patient).complete
        patient.close()

    def test_a_value_of_another_type_ends_the_request_without_quoting_it(
        self, database: Database, reader: CopyChunkReader
    ) -> None:
        database.run("CREATE TABLE t (id int PRIMARY KEY)")
        reported = failed(reader, keys=(("hunter2",),))
        assert not reported.retry and "hunter2" not in reported.error


def test_a_roles_own_limits_do_not_end_what_takes_long(database: Database) -> None:
    database.run(
        f"ALTER DATABASE {database.name} SET statement_timeout = '1ms'",
        f"ALTER DATABASE {database.name} SET idle_in_transaction_session_timeout = '1ms'",
        f"ALTER DATABASE {database.name} SET default_transaction_read_only = on",
    )
    settings = make_settings(
        {
            "pipeline": "p",
            "source": {"url": database.dsn},
            "store": {"url": "memory://x"},
            "warehouse": {"url": "file:///tmp/w"},
        }
    )
    connection = connect(settings.source, application_name="test")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.05)")
        cursor.execute("CREATE TABLE public.t (id int)")
    connection.close()
