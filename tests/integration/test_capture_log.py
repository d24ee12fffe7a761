"""Reading the log: whole transactions of any size, foreign messages, and where to go on."""

from __future__ import annotations

import time

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from devtools.services.postgres import PostgresServer
from tests.fixtures.capture import IDLE_S, Pipeline, PipelineFactory, poll
from tests.fixtures.services import Database
from tests.support.checks import check_equal, check_history, end_lsn
from tests.support.workload import SCHEMA, TABLES, Workload
from tideline.contract.manifest import ManifestKind, Part
from tideline.store.objects import open_store

HUGE_ROWS = 300_000
GROWTH_BYTES_MAX = 300 * 1024 * 1024
MiB = 1024 * 1024


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(*SCHEMA)
    return pipeline_of(database)


def test_a_huge_transaction_in_flat_memory(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    """Its parts are uploaded as it is read; one manifest commits them, and life goes on beside."""
    database.run(
        "CREATE TABLE big (id int PRIMARY KEY, v bigint, t text)",
        "CREATE TABLE small (id int PRIMARY KEY, v int)",
        "INSERT INTO small VALUES (1, 1)",
    )
    limits = {"segment_bytes_max": 8 * MiB, "upload_bytes_max": 32 * MiB, "heartbeat_s": 0.2}
    shop = pipeline_of(database, capture=limits)
    worker = shop.start()
    shop.wait_state("the first dumps end", lambda s: "public.big" in s.tables and not s.requests)
    process = psutil.Process(worker.pid)
    before, largest = process.memory_info().rss, 0
    filled = (
        "INSERT INTO big SELECT g, g * 7919::bigint, md5(g::text) || md5((g + 1)::text)"
        " FROM generate_series(1, 300000) g"
    )
    database.run("; ".join(("BEGIN", filled, "UPDATE small SET v = 2", "COMMIT")))

    def committed() -> bool:
        nonlocal largest
        largest = max(largest, process.memory_info().rss)
        return shop.manifest().last_seq > HUGE_ROWS

    poll("the transaction is committed", committed)
    worker.terminate()
    holding = [m for m in shop.manifests() if any(p.table == "public.big" for p in m.parts)]
    assert len(holding) == 1
    assert {part.table for part in holding[0].parts} == {"public.big", "public.small"}
    parts = [part for part in holding[0].parts if part.table == "public.big"]
    assert len(parts) > 3
    assert largest - before < GROWTH_BYTES_MAX
    ids = pa.concat_tables([part_rows(shop, part, ["_tl_seq", "id"]) for part in parts])
    assert ids.column("id").to_pylist() == list(range(1, HUGE_ROWS + 1))
    first = parts[0].first_seq
    assert ids.column("_tl_seq").to_pylist() == list(range(first, first + HUGE_ROWS))


def part_rows(shop: Pipeline[Database], part: Part, columns: list[str]) -> pa.Table:
    data = open_store(shop.settings.store).get(part.key)
    assert data is not None
    return pq.read_table(pa.BufferReader(data), columns=columns)


def test_messages_of_others_do_not_hold_the_position_back(shop: Pipeline[Database]) -> None:
    """One outside a transaction ends what is decoded at once; what was before it counts."""
    worker = shop.start()
    shop.wait_state("the first dumps end", lambda s: len(s.tables) == 4 and not s.requests)
    connection = shop.database.connect()
    with connection.cursor() as cursor:
        for number in range(5):
            captured = shop.manifest().last_seq
            cursor.execute("SELECT pg_logical_emit_message(true, 'other', 'x')")
            cursor.execute("SELECT pg_logical_emit_message(true, '', '')")
            cursor.execute("SELECT pg_logical_emit_message(true, 'tideline', 'not ours L t 1')")
            cursor.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
            before = int(cursor.fetchone()[0])
            cursor.execute("INSERT INTO ledger VALUES (%s, 1, now())", (number,))
            cursor.execute("SELECT pg_logical_emit_message(false, 'other', 'x')")
            poll("it is captured", lambda seq=captured: shop.manifest().last_seq > seq)  # type: ignore[misc]
            holding = [m for m in shop.manifests() if m.last_seq == captured + 1]
            assert end_lsn(holding[0]) > before
    connection.close()
    worker.terminate()
    check_history(
        check_equal(shop.settings, shop.database, TABLES), ledger="public.ledger", versioned=[]
    )


def test_prepared_transactions_come_once_they_are_committed(
    own_postgres: PostgresServer, own_database: Database, pipeline_of: PipelineFactory
) -> None:
    own_database.run("ALTER SYSTEM SET max_prepared_transactions = 10")
    own_postgres.restart()
    own_database.run("CREATE TABLE items (id int PRIMARY KEY, v int)")
    shop = pipeline_of(own_database)
    shop.drain()
    insert = "BEGIN; INSERT INTO items VALUES"
    own_database.run(
        f"{insert} (2, 1); PREPARE TRANSACTION 'kept'",
        f"{insert} (3, 1); PREPARE TRANSACTION 'undone'",
        f"{insert} (4, 1); PREPARE TRANSACTION 'left open'",
    )
    own_database.run("INSERT INTO items VALUES (1, 1)", "ROLLBACK PREPARED 'undone'")
    shop.drain()
    own_database.run("COMMIT PREPARED 'kept'")
    shop.drain()
    captured = check_equal(shop.settings, own_database, ["public.items"])
    changes = captured.table("public.items")
    assert [(change.op, change.key) for change in changes] == [("c", ("1",)), ("c", ("2",))]


def test_a_clean_stop_lets_the_next_worker_begin_at_once(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    database.run(*SCHEMA)
    shop = pipeline_of(database, capture={"takeover_after_s": 300.0})
    with Workload(database.dsn, seed=4) as traffic:
        for _ in range(2):
            worker = shop.start()
            worker.wait_point("reading")
            traffic.wait_for(50)
            worker.terminate()
            assert shop.manifest().released
    begun = time.monotonic()
    worker = shop.start(until_idle_s=IDLE_S)
    assert worker.wait() == 0
    assert time.monotonic() - begun < 200
    captured = check_equal(shop.settings, database, TABLES)
    check_history(captured, ledger="public.ledger", versioned=["public.accounts"])
    takeovers = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert [m.term for m in takeovers] == [2, 3]


def test_what_is_confirmed_never_passes_the_chain(shop: Pipeline[Database]) -> None:
    query = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots"
    mine = f"{query} WHERE database = current_database()"
    with Workload(shop.database.dsn, seed=5) as traffic:
        worker = shop.start()
        worker.wait_point("reading")  # Before it there is no slot.
        worker.wait_point("after-manifest", 5)
        for _ in range(20):
            confirmed = int(shop.database.rows(mine)[0][0])
            assert confirmed <= end_lsn(shop.manifest())
            traffic.wait_for(20)
        start = int(shop.database.rows(mine)[0][0])
        poll("the slot moves on", lambda: int(shop.database.rows(mine)[0][0]) > start)
    worker.terminate()


class TestLost:
    """What comes next is gone: the worker says so and exits, and nothing is appended."""

    def expect(self, shop: Pipeline[Database], *words: str) -> None:
        before = shop.manifest()
        worker = shop.start()
        assert worker.wait() == 4, worker.output()[-3000:]
        assert "SourceLost" in worker.output()
        for word in words:
            assert word in worker.output()
        assert shop.manifest().last_seq == before.last_seq

    def slot(self, shop: Pipeline[Database]) -> str:
        """Its name, once the server has noticed that the worker is gone."""
        query = (
            "SELECT slot_name FROM pg_replication_slots"
            " WHERE database = current_database() AND active_pid IS NULL"
        )
        poll("the slot is free", lambda: bool(shop.database.rows(query)))
        return str(shop.database.rows(query)[0][0])

    def test_the_slot_was_moved_by_someone_else(self, shop: Pipeline[Database]) -> None:
        shop.drain()
        slot = self.slot(shop)
        shop.database.run(
            "INSERT INTO ledger VALUES (1, 1, now())",
            f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())",
        )
        self.expect(shop, slot)

    def test_the_slot_was_dropped(self, shop: Pipeline[Database]) -> None:
        shop.drain()
        slot = self.slot(shop)
        shop.database.run(f"SELECT pg_drop_replication_slot('{slot}')")
        self.expect(shop, slot, "is gone")

    def test_another_database(
        self, shop: Pipeline[Database], database: Database, pipeline_of: PipelineFactory
    ) -> None:
        shop.drain()
        other = shop.database.dsn_of("postgres")
        self.expect(pipeline_of(database, source={"url": other}), "another server")
