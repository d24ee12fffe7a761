"""Logical messages of an application, as a worker captures them from PostgreSQL: each once, in
order with the rows around it, whenever the worker is killed."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator

import psycopg2
import pyarrow.parquet as pq
import pytest

from tests.fixtures.capture import QUICK, Pipeline, PipelineFactory, WorkerProcess
from tests.fixtures.services import Database
from tideline.contract.messages import CONTENT
from tideline.store.objects import open_store

Change = tuple[str, object]
"""The table or prefix of a change, and its value."""
EVENT_BYTES_MAX = 1 << 20
LARGEST = EVENT_BYTES_MAX - len("Mf12345678outbox_1234")
"""The largest content: of a message, kind, flags, position, prefix and length count as well."""
POINTS = (
    "inside-transaction",
    "before-part-put",
    "between-parts-and-manifest",
    "after-manifest",
    "before-confirm",
    "after-confirm",
)


def emit(
    cursor: psycopg2.extensions.cursor, prefix: str, text: str, *, within: bool = True
) -> None:
    cursor.execute("SELECT pg_logical_emit_message(%s, %s, %s)", (within, prefix, text))


def changes_of(pipeline: Pipeline[Database]) -> list[Change]:
    """All rows and messages of the chain, in the order of their sequences, which have no gap."""
    store = open_store(pipeline.settings.store)
    found: list[tuple[int, Change]] = []
    for manifest in pipeline.manifests():
        for part in (*manifest.parts, *manifest.logged_messages):
            raw = store.get(part.key)
            assert raw is not None
            name = part.table.partition(".")[2]
            for row in pq.read_table(io.BytesIO(raw)).to_pylist():
                value = row["id"] if part in manifest.parts else row[CONTENT]
                found.append((row["_tl_seq"], (name, value)))
                assert row["_tl_tx"] > 0 and row["_tl_ts"].year > 2000
    assert len({seq for seq, _ in found}) == len(found)
    return [change for _, change in sorted(found)]


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Iterator[Pipeline[Database]]:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    made = pipeline_of(
        database,
        source={"tables": ["public.t"], "messages": ["outbox", "out.2"]},
        capture={**QUICK, "event_bytes_max": EVENT_BYTES_MAX, "segment_bytes_max": 1 << 20},
    )
    made.drain()
    yield made


def captures(pipeline: Pipeline[Database]) -> WorkerProcess:
    """A worker that reads the log."""
    worker = pipeline.start()
    worker.wait_point("reading")
    return worker


def test_messages_are_in_order_with_rows_and_only_those_that_are_asked_for(
    shop: Pipeline[Database], database: Database
) -> None:
    worker = captures(shop)
    with psycopg2.connect(database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        emit(cursor, "outbox", "a")
        cursor.execute("INSERT INTO t VALUES (2)")
        emit(cursor, "other", "b")
        emit(cursor, "out.2", "ü")
        emit(cursor, "outbox", "")
        connection.commit()
        emit(cursor, "outbox", "rolled back")
        cursor.execute("INSERT INTO t VALUES (3)")
        connection.rollback()
        emit(cursor, "outbox", "of no transaction", within=False)
        connection.rollback()
        emit(cursor, "outbox", "alone")
        connection.commit()
        emit(cursor, "outbox", "x" * LARGEST)
        emit(cursor, "outbox", "y" * (LARGEST - 1))
        connection.commit()
    shop.finish(worker)
    assert changes_of(shop) == [
        ("t", 1),
        ("outbox", b"a"),
        ("t", 2),
        ('"out.2"', "ü".encode()),
        ("outbox", b""),
        ("outbox", b"alone"),
        ("outbox", b"x" * LARGEST),
        ("outbox", b"y" * (LARGEST - 1)),
    ]
    assert "a logical message of no transaction is left out" in worker.output()
    # Warehouses know nothing of them.
    assert set(shop.state().tables) == {"public.t"}


def test_the_content_of_one_that_is_too_large_is_left_out_and_capture_goes_on(
    shop: Pipeline[Database], database: Database
) -> None:
    worker = captures(shop)
    with psycopg2.connect(database.dsn) as connection, connection.cursor() as cursor:
        emit(cursor, "outbox", "before")
        emit(cursor, "outbox", "x" * (LARGEST + 1))
        emit(cursor, "outbox", "behind")
    shop.finish(worker)
    assert changes_of(shop) == [("outbox", b"before"), ("outbox", None), ("outbox", b"behind")]
    assert "larger than capture.event_bytes_max" in worker.output()


def test_without_the_setting_there_is_none(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline = pipeline_of(database, source={"tables": ["public.t"]}, capture=QUICK)
    pipeline.drain()
    worker = captures(pipeline)
    with psycopg2.connect(database.dsn) as connection, connection.cursor() as cursor:
        emit(cursor, "outbox", "a")
        cursor.execute("INSERT INTO t VALUES (1)")
    pipeline.finish(worker)
    assert changes_of(pipeline) == [("t", 1)]


@pytest.mark.parametrize("point", POINTS)
def test_each_is_there_once_wherever_the_worker_is_killed(
    shop: Pipeline[Database], database: Database, point: str
) -> None:
    wanted: list[Change] = []
    for round_number in range(3):
        worker = captures(shop)
        with psycopg2.connect(database.dsn) as connection, connection.cursor() as cursor:
            for number in range(round_number * 10, round_number * 10 + 5):
                # More than a segment holds: rows and messages are uploaded before the commit.
                text = f"{number} " + "x" * (300_000 if point == "inside-transaction" else 5)
                cursor.execute("INSERT INTO t VALUES (%s)", (number,))
                emit(cursor, "outbox", text)
                wanted += [("t", number), ("outbox", text.encode())]
            connection.commit()
            emit(cursor, "outbox", f"{round_number}")
            wanted.append(("outbox", f"{round_number}".encode()))
            worker.kill_at(point)
        assert worker.wait() == -signal.SIGKILL
    shop.drain()
    assert changes_of(shop) == wanted
