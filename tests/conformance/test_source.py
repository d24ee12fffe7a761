"""One suite over every source: what a chain says of a database holds whatever the database is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fixtures.capture import Pipeline, PipelineFactory, poll
from tests.fixtures.sources import EVERY_SOURCE, ConformingSource, Writers, by_key, ordered
from tests.support.checks import Captured, check_equal, check_history, read_chain
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.request import DumpRequest, RequestState, TimeRange

pytestmark = pytest.mark.parametrize("conforming", EVERY_SOURCE, indirect=True)

HUGE_ROWS = 12_000
ROWS = 3_000


@pytest.fixture
def shop(conforming: ConformingSource, pipeline_of: PipelineFactory) -> Pipeline[ConformingSource]:
    """A pipeline of three tables, ``items`` with three rows; no worker runs."""
    for table in ("items", "other", "ledger"):
        conforming.make(table)
    conforming.fill("items", 1, 3)
    return pipeline_of(conforming)


def equal(shop: Pipeline[ConformingSource], *tables: str) -> Captured:
    names = [shop.database.full_name(table) for table in tables]
    return check_equal(shop.settings, shop.database, names)


def test_dump_and_log_in_order(shop: Pipeline[ConformingSource]) -> None:
    """Changed keys, rows that are deleted and come again, truncates, and nothing rolled back."""
    shop.drain()
    source = shop.database
    items, other = source.full_name("items"), source.full_name("other")
    dumped = equal(shop, "items", "other", "ledger")
    assert ordered(dumped.table(items)) == [("r", 1, None), ("r", 2, None), ("r", 3, None)]
    source.transact(
        "INSERT INTO items VALUES (4, 1, NULL, 'new')",
        "INSERT INTO other VALUES (1, 1, '2024-02-29 12:00:00', NULL)",
        "UPDATE items SET ver = 2 WHERE id = 2",
        "UPDATE items SET id = 20 WHERE id = 2",
    )
    source.transact("UPDATE items SET ver = 9", "DELETE FROM other", commit=False)
    source.transact(
        "DELETE FROM items WHERE id = 1",
        "SAVEPOINT a",
        "DELETE FROM items WHERE id = 3",
        "ROLLBACK TO SAVEPOINT a",
        "INSERT INTO items VALUES (1, 3, NULL, 'again')",
    )
    source.run(
        "DELETE FROM items WHERE id = 4",
        "TRUNCATE TABLE other",
        "INSERT INTO other VALUES (1, 2, NULL, 'after')",
    )
    shop.drain()
    captured = equal(shop, "items", "other", "ledger")
    assert ordered(captured.table(items))[3:] == [
        ("c", 4, None),
        ("u", 2, None),
        ("u", 20, 2),
        ("d", 1, None),
        ("c", 1, None),
        ("d", 4, None),
    ]
    assert ordered(captured.table(other)) == [("c", 1, None), ("c", 1, None)]
    merged = sorted([*captured.table(items)[3:], *captured.table(other)], key=lambda c: c.seq)
    assert "".join(change.op for change in merged) == "ccuudcdc"
    emptied = [t for m in captured.manifests for t in m.truncates]
    assert [truncate.table for truncate in emptied] == [other]
    first, second = captured.table(other)
    assert first.seq < emptied[0].seq < second.seq


def test_schemas_and_tables_that_change_while_it_runs(shop: Pipeline[ConformingSource]) -> None:
    source = shop.database
    worker = shop.start()
    live = {source.full_name(table) for table in ("items", "other", "ledger")}
    shop.wait_state("the first dumps end", lambda s: live <= s.tables.keys() and not s.requests)
    source.run(
        "ALTER TABLE items ADD COLUMN note VARCHAR(20)",
        "UPDATE items SET note = 'n' WHERE id = 2",
        "ALTER TABLE items DROP COLUMN at",
        "INSERT INTO items (id, ver) VALUES (7, 7)",
        "ALTER TABLE items ADD COLUMN filled INT NOT NULL DEFAULT 5",
        "DELETE FROM items WHERE id = 3",
    )
    source.make("late")
    source.fill("late", 1, 450)
    late = source.full_name("late")
    shop.wait_state("the new table is taken up", lambda state: late in state.tables)
    source.run("UPDATE late SET ver = 8 WHERE id = 400", "DROP TABLE other")
    worker.terminate()
    shop.drain()
    captured = equal(shop, "items", "late")
    items = source.full_name("items")
    assert captured.schemas[items].column_names == ("id", "ver", "t", "note", "filled")
    events = [e for m in captured.manifests for e in m.schema_events if e.table == items]
    assert len(events) >= 4
    assert {shop.table(name).condition for name in (items, late)} == {TableCondition.ACTIVE}
    # Where the log has the table's creation it has all of its rows, and there is nothing to dump.
    deletes_before = [
        delete_before
        for m in captured.manifests
        for delete_before in m.deletes_before
        if delete_before.table == late
    ]
    begun = shop.table(late).captured_from
    assert begun is not None
    assert len(deletes_before) == (0 if begun.created else 1)


@pytest.mark.parametrize("kill", [None, "between-chunks", "between-parts-and-manifest"])
def test_a_dump_under_writes(
    conforming: ConformingSource, pipeline_of: PipelineFactory, kill: str | None
) -> None:
    """Equal at the end, no value goes back; killed, it goes on, and nothing comes twice."""
    for table in ("items", "ledger"):
        conforming.make(table)
    conforming.fill("items", 1, ROWS)
    items = conforming.full_name("items")
    limits = {"chunk_rows": 150, "delay_ms": 40}
    slow = {**limits, "delay_ms": 1_000}
    shop = pipeline_of(conforming, capture=slow if kill else limits)
    with Writers(conforming, "items", "ledger", keys=ROWS) as traffic:
        if kill is not None:
            doomed = shop.start()
            shop.wait_state("chunks are durable", lambda s: under_way(s, items))
            doomed.kill_at(kill)
            assert under_way(shop.state(), items), "the dump ended before the kill"
            pipeline_of(conforming, capture=limits)
        worker = shop.start()
        shop.wait_state("the dump ends", lambda s: items in s.tables and not s.requests)
        commits = traffic.commits
        poll("the writers went on", lambda: traffic.commits > commits + 20)
    worker.terminate()
    shop.drain()
    captured = equal(shop, "items", "ledger")
    check_history(captured, ledger=conforming.full_name("ledger"), versioned=[items])
    operations = {change.op for change in captured.table(items)}
    assert operations == set("rcud"), "the dump and the writers did not meet"
    takeovers = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert len(takeovers) == 1 + (kill is not None)  # one by the last worker, after a clean stop


def under_way(state: OpenState, table: str) -> bool:
    """Whether the dump of ``table`` has durable chunks, and has not ended."""
    dumps = [dump for request in state.requests for dump in request.dumps]
    return any(dump.table == table and dump.chunks for dump in dumps)


def test_requests_and_an_idle_source(shop: Pipeline[ConformingSource]) -> None:
    """Given keys, a time range, whole tables; and the source's clock moves while nothing does."""
    source = shop.database
    source.fill("items", 4, 50)
    worker = shop.start()
    items = source.full_name("items")
    shop.wait_state("the first dumps end", lambda s: items in s.tables and not s.requests)
    keys = tuple((str(key),) for key in (7, 1, 999, -3, 50))
    span = TimeRange("at", "2024-01-01 10:00:00", "2024-01-01 20:00:00")
    asked = (
        DumpRequest("by-keys", (items,), keys=keys, chunk_rows=2),
        DumpRequest("by-time", (items,), time=span, chunk_rows=4),
        DumpRequest("whole", (items,), chunk_rows=7),
    )
    for request in asked:
        answer = shop.ask(request)
        assert answer.state is RequestState.DONE, answer
    poll("the clock moves on", moved_on(shop, shop.manifest()))
    worker.terminate()
    captured = equal(shop, "items")
    accepted = {name: m.first_seq for m in captured.manifests for name in m.accepted}
    changes = [c for c in captured.table(items) if c.seq >= accepted["by-keys"]]
    found = by_key([c for c in changes if c.seq < accepted["by-time"]])
    assert found == {-3: "d", 999: "d", 1: "r", 7: "r", 50: "r"}
    found = by_key([c for c in changes if accepted["by-time"] <= c.seq < accepted["whole"]])
    assert found == dict.fromkeys(range(10, 20), "r")
    found = by_key([c for c in changes if c.seq >= accepted["whole"]])
    assert found == dict.fromkeys(range(1, 51), "r")
    deletes_before = [
        f.request_id for m in captured.manifests for f in m.deletes_before if f.table == items
    ]
    assert "whole" in deletes_before and not {"by-keys", "by-time"} & set(deletes_before)


def moved_on(shop: Pipeline[ConformingSource], before: Manifest) -> Callable[[], bool]:
    """Whether an empty manifest has come whose clock of the source is a second further."""

    def moved() -> bool:
        newest = shop.manifest()
        if newest.parts or newest.source_time_us is None:
            return False
        return newest.source_time_us > (before.source_time_us or 0) + 1_000_000

    return moved


def test_a_huge_transaction_is_one_manifest(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """Of several parts, with the small one of another table beside it."""
    for table in ("big", "small", "seed"):
        conforming.make(table)
    conforming.fill("small", 1, 1)
    conforming.fill("seed", 1, HUGE_ROWS)
    limits = {"segment_bytes_max": 1 << 20, "upload_bytes_max": 8 << 20}
    left_out = {"exclude": [conforming.full_name("seed")]}
    shop = pipeline_of(conforming, capture=limits, source=left_out)
    shop.drain()
    begun = shop.manifest().last_seq
    conforming.transact(
        f"INSERT INTO big SELECT id, ver, at, {conforming.noise('id')} FROM seed",  # noqa: S608
        "UPDATE small SET ver = 2",
    )
    shop.drain()
    captured = equal(shop, "big", "small")
    big = conforming.full_name("big")
    holding = [m for m in captured.manifests if any(part.table == big for part in m.parts)]
    assert len(holding) == 1
    assert len([part for part in holding[0].parts if part.table == big]) >= 2
    assert conforming.full_name("small") in {part.table for part in holding[0].parts}
    changes = [c for c in captured.table(big) if c.seq > begun]
    assert ordered(changes) == [("c", number, None) for number in range(1, HUGE_ROWS + 1)]


def test_another_server_is_refused(
    shop: Pipeline[ConformingSource], pipeline_of: PipelineFactory
) -> None:
    shop.drain()
    before = shop.manifest()
    moved = pipeline_of(shop.database, source=shop.database.stranger())
    worker = moved.start()
    assert worker.wait() == 4, worker.output()[-3000:]
    assert "SourceLost" in worker.output() and "another server" in worker.output()
    assert read_chain(moved.settings).manifests[-1].last_seq == before.last_seq
