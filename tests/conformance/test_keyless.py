# ruff: noqa: S608  statements are made of constants and our own names
"""Tables without a key, on every source: equal rows are counted, and the copy of a table that is
written to all the while is exact with respect to the log."""

from __future__ import annotations

import io
import random
import threading
from collections import Counter
from typing import Any, Self

import psycopg2
import pyarrow.parquet as pq
import pymysql
import pytest

from tests.fixtures.capture import PATIENCE_S, Pipeline, PipelineFactory, poll
from tests.fixtures.sources import ConformingSource
from tideline.contract.manifest import DeleteBefore, Manifest
from tideline.contract.open_state import OpenState, TableCondition
from tideline.contract.request import DumpRequest, RequestState, TimeRange
from tideline.store.objects import open_store
from tideline_console.doctor import examine

COUNTED = {"*.bag": {"keyless": "counted"}}
COLUMNS = ("a", "t")
KINDS = 200
"""Different rows: each is there many times."""
ROWS = 2_000
Row = tuple[Any, ...]
_CONFLICTS = (pymysql.OperationalError, psycopg2.extensions.TransactionRollbackError)


@pytest.fixture
def bag(conforming: ConformingSource) -> ConformingSource:
    """A database with a table ``bag`` without a key, whose log holds whole rows."""
    conforming.run("CREATE TABLE bag (a INT, t VARCHAR(40))")
    if "postgres" in conforming.source["url"]:
        conforming.run("ALTER TABLE bag REPLICA IDENTITY FULL")
    for first in range(0, ROWS, 500):
        rows = ", ".join(f"({n % KINDS}, NULL)" for n in range(first, first + 500))
        conforming.run(f"INSERT INTO bag VALUES {rows}")
    return conforming


def source_bag(source: ConformingSource) -> Counter[Row]:
    with source.session() as cursor:
        cursor.execute("SELECT a, t FROM bag")
        return Counter(tuple(row) for row in cursor.fetchall())


def chain_bag(pipeline: Pipeline[ConformingSource], table: str) -> Counter[Row]:
    """What the chain says, by the rules of the documents alone: the newest finished copy, and each
    change since that the copy does not show."""
    manifests = pipeline.manifests()
    delete_before = [f for m in manifests for f in m.deletes_before if f.table == table][-1]
    emptied = max((t.seq for m in manifests for t in m.truncates if t.table == table), default=0)
    assert delete_before.copied is not None
    seen = {seq for first, last in delete_before.copied.seen for seq in range(first, last + 1)}
    counted: Counter[Row] = Counter()
    copied = 0
    for row in rows_of(pipeline, manifests, table):
        seq, op = row["_tl_seq"], row["_tl_op"]
        if seq <= max(delete_before.seq, emptied) or seq in seen:
            continue
        now, before = (tuple(row.get(f"{p}{c}") for c in COLUMNS) for p in ("", "_tl_before_"))
        if op == "r":
            if seq <= delete_before.copied.last_seq:
                counted[now] += 1
                copied += 1
            continue
        if op in "ud":
            assert row["_tl_image"], "a change without the row before"
            counted[before] -= 1
        if op in "cu":
            counted[now] += 1
    assert emptied > delete_before.seq or copied == delete_before.copied.rows
    assert all(count >= 0 for count in counted.values()), "more rows went than there were"
    return +counted


def rows_of(
    pipeline: Pipeline[ConformingSource], manifests: list[Manifest], table: str
) -> list[dict[str, Any]]:
    store = open_store(pipeline.settings.store)
    rows: list[dict[str, Any]] = []
    for part in (part for m in manifests for part in m.parts if part.table == table):
        read = pq.read_table(io.BytesIO(store.get(part.key) or b"")).to_pylist()
        assert sum(bool(row.get("_tl_image")) for row in read) == part.before_image_rows
        assert (part.key_min, part.key_max, part.before_rows) == (None, None, 0)
        rows += read
    return rows


class BagWriters:
    """Clients that insert, change and delete equal rows until the context ends."""

    def __init__(self, source: ConformingSource) -> None:
        self.commits = 0
        self._source = source
        self._failures: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(3)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
        if self._failures:
            raise self._failures[0]

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        try:
            with self._source.session() as cursor:
                while not self._stopping.is_set():
                    self._transact(cursor, rng)
                    self._stopping.wait(0.01)
        except BaseException as error:
            self._failures.append(error)
            raise

    def _transact(self, cursor: Any, rng: random.Random) -> None:
        try:
            cursor.execute("BEGIN")
            for _ in range(rng.randint(1, 3)):
                kind, other = rng.randrange(KINDS), rng.randrange(KINDS)
                cursor.execute(
                    rng.choice(
                        [
                            f"INSERT INTO bag VALUES ({kind}, NULL), ({kind}, NULL), ({kind}, 'x')",
                            f"INSERT INTO bag VALUES ({kind}, 'x'), ({other}, NULL)",
                            f"UPDATE bag SET a = {other} WHERE a = {kind} AND t IS NULL",
                            f"DELETE FROM bag WHERE a = {kind} AND t = 'x'",
                        ]
                    )
                )
            undone = rng.random() < 0.1
            cursor.execute("ROLLBACK" if undone else "COMMIT")
            self.commits += not undone
        except _CONFLICTS:
            cursor.execute("ROLLBACK")


def copying(state: OpenState, table: str) -> bool:
    """Whether rows of a copy are durable, and it has not ended."""
    dumps = [dump for request in state.requests for dump in request.dumps]
    return any(dump.table == table and dump.rows for dump in dumps)


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed-between-chunks"])
def test_a_copy_under_writes_is_exact(
    bag: ConformingSource, pipeline_of: PipelineFactory, killed: bool
) -> None:
    """Repeatedly, and killed in the middle: then it starts again."""
    table = bag.full_name("bag")
    limits = {"chunk_rows": 150, "delay_ms": 30, "chunk_bytes_max": 4_000}
    slow = {**limits, "delay_ms": 3_000}
    pipeline = pipeline_of(bag, capture=slow if killed else limits, tables=COUNTED)
    with BagWriters(bag) as traffic:
        if killed:
            doomed = pipeline.start()
            pipeline.wait_state("rows are durable", lambda s: copying(s, table))
            doomed.kill()
            assert copying(pipeline.state(), table), "the copy ended before the kill"
            pipeline_of(bag, capture=limits, tables=COUNTED)
        worker = pipeline.start()
        pipeline.wait_state("the copy ends", lambda s: table in s.tables and not s.requests)
        for number in range(3):
            answer = pipeline.ask(DumpRequest(f"again{number}", (table,)))
            assert answer.state is RequestState.DONE, answer
        commits = traffic.commits
        poll("the writers went on", lambda: traffic.commits > commits + 20)
    worker.terminate()
    pipeline.drain()
    assert chain_bag(pipeline, table) == source_bag(bag)
    assert pipeline.table(table).condition is TableCondition.ACTIVE
    deletes_before = [
        delete_before for m in pipeline.manifests() for delete_before in m.deletes_before
    ]
    assert len(deletes_before) == 4 and all(
        _whole(delete_before) for delete_before in deletes_before
    )
    ops = {row["_tl_op"] for row in rows_of(pipeline, pipeline.manifests(), table)}
    assert ops == set("rcud"), "copies and writers did not meet"


def _whole(delete_before: DeleteBefore) -> bool:
    return delete_before.copied is not None and delete_before.copied.rows > 0


def test_what_else_happens_to_it(bag: ConformingSource, pipeline_of: PipelineFactory) -> None:
    """A truncate in the middle of a copy, requests that need a key, a new column."""
    table = bag.full_name("bag")
    limits = {"chunk_rows": 150, "delay_ms": 3_000, "chunk_bytes_max": 4_000}
    pipeline = pipeline_of(bag, capture=limits, tables=COUNTED)
    worker = pipeline.start()
    pipeline.wait_state("rows are durable", lambda s: copying(s, table))
    emptying = threading.Thread(target=bag.run, args=("TRUNCATE TABLE bag",))
    emptying.start()
    emptying.join(0.5)  # It may wait for the copy's end.
    pipeline.hurry()
    emptying.join(PATIENCE_S)
    bag.run("INSERT INTO bag VALUES (1, 'after'), (1, 'after'), (NULL, NULL), (NULL, NULL)")
    pipeline.wait_state("the copy ends", lambda s: not s.requests)
    for request in (
        DumpRequest("keys", (table,), keys=(("1",),)),
        DumpRequest("time", (table,), time=TimeRange("a", "1", "2")),
    ):
        answer = pipeline.ask(request)
        assert (answer.state, "no key" in str(answer.error)) == (RequestState.REFUSED, True)
    bag.run("DELETE FROM bag WHERE a IS NULL", "INSERT INTO bag VALUES (1, 'after')")
    bag.run("ALTER TABLE bag ADD COLUMN n INT", "UPDATE bag SET n = 5")
    worker.terminate()
    pipeline.drain()
    assert chain_bag(pipeline, table) == source_bag(bag) == Counter({(1, "after"): 3})
    assert pipeline.table(table).condition is TableCondition.ACTIVE


def test_where_nothing_may_be_written(bag: ConformingSource, pipeline_of: PipelineFactory) -> None:
    """Without pulses a snapshot needs a moment in which nobody changes the table."""
    if "postgres" in bag.source["url"]:
        bag.run("DELETE FROM bag")  # Watermarks are no rows there; an empty table has a copy, too.
    read_only = {} if "postgres" in bag.source["url"] else {"read_only": True}
    pipeline = pipeline_of(bag, source=read_only, tables=COUNTED)
    pipeline.drain()
    bag.run("INSERT INTO bag VALUES (7, 'x'), (7, 'x')", "DELETE FROM bag WHERE a = 1")
    pipeline.drain()
    table = bag.full_name("bag")
    assert chain_bag(pipeline, table) == source_bag(bag)
    assert pipeline.table(table).condition is TableCondition.ACTIVE


def test_refused_with_the_ways_on(bag: ConformingSource, pipeline_of: PipelineFactory) -> None:
    pipeline = pipeline_of(bag)
    pipeline.drain()
    state = pipeline.table(bag.full_name("bag"))
    assert state.condition is TableCondition.QUARANTINED
    reported = [one for one in examine(pipeline.settings) if one.name == "quarantined"]
    for way in ("key = ", 'keyless = "counted"', 'mode = "append"'):
        assert way in str(state.hint), state.hint
        assert [way in str(one.fix) for one in reported] == [True]
    settings = {"*.bag": {**COUNTED["*.bag"], "before_image": "full"}}
    heard = [one.name for one in examine(pipeline_of(bag, tables=settings).settings)]
    assert {"quarantined", "before_image"}.isdisjoint(heard)
    if "postgres" in bag.source["url"]:
        bag.make("items")
        asked = pipeline_of(bag, tables={"*.items": {"before_image": "full"}}).settings
        (warned,) = [one for one in examine(asked) if one.name == "before_image"]
        assert "REPLICA IDENTITY FULL" in str(warned.fix)


def test_a_key_by_the_settings(bag: ConformingSource, pipeline_of: PipelineFactory) -> None:
    """Only what the server itself keeps unique and not NULL is a key; then it is one in all."""
    is_postgres = "postgres" in bag.source["url"]
    bag.run("CREATE TABLE named (b INT NOT NULL, a INT NOT NULL, t VARCHAR(40))")
    bag.run("INSERT INTO named VALUES (1, 1, 'x'), (1, 2, 'y'), (2, 1, 'z')")
    table = bag.full_name("named")
    pipeline = pipeline_of(bag, tables={"*.named": {"key": ["a", "b"]}, **COUNTED})
    pipeline.drain()
    quarantined = pipeline.table(table)
    assert quarantined.condition is TableCondition.QUARANTINED
    assert "no unique index" in str(quarantined.reason), quarantined
    bag.run("CREATE UNIQUE INDEX named_key ON named (a, b)")
    if is_postgres:
        pipeline.drain()
        quarantined = pipeline.table(table)
        assert "REPLICA IDENTITY" in str(quarantined.hint), quarantined
        bag.run("ALTER TABLE named REPLICA IDENTITY USING INDEX named_key")
    pipeline.drain()
    bag.run(
        "UPDATE named SET a = 5 WHERE t = 'x'",
        "DELETE FROM named WHERE t = 'y'",
        "INSERT INTO named VALUES (9, 9, NULL)",
    )
    pipeline.drain()
    assert pipeline.table(table).condition is TableCondition.ACTIVE
    schema = pipeline.chain.read_schema(str(pipeline.table(table).schema))
    assert schema.key == ("a", "b")
    last = rows_of_keyed(pipeline, table)[-3:]
    assert [(r["_tl_op"], r["a"], r["b"], r.get("_tl_before_a")) for r in last] == [
        ("u", 5, 1, 1),
        ("d", 2, 1, None),
        ("c", 9, 9, None),
    ]


def test_full_before_images(bag: ConformingSource, pipeline_of: PipelineFactory) -> None:
    """All columns of the row before, as far as the log has them; other tables stay as they were."""
    full = "ALTER TABLE {} REPLICA IDENTITY FULL"
    for table in ("items", "other"):
        bag.make(table)
        bag.fill(table, 1, 3)
        if "postgres" in bag.source["url"]:
            bag.run(full.format(table))
    items = bag.full_name("items")
    pipeline = pipeline_of(bag, tables={"*.items": {"before_image": "full"}, **COUNTED})
    pipeline.drain()
    for table in ("items", "other"):
        bag.run(
            f"UPDATE {table} SET ver = 7, t = NULL WHERE id = 1",
            f"UPDATE {table} SET id = 20 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
        )
    pipeline.drain()
    changes = [row for row in rows_of_keyed(pipeline, items) if row["_tl_op"] != "r"]
    reported = [
        (r["_tl_op"], r["_tl_image"], r["_tl_before_ver"], r["_tl_before_t"]) for r in changes
    ]
    assert reported == [
        ("u", True, 0, "filled"),
        ("u", True, 0, "filled"),
        ("d", True, 0, "filled"),
    ]
    # A part has the old keys only where one changed, and three transactions may be in three parts.
    assert [row.get("_tl_before_id") for row in changes] == [None, 2, None]
    assert sum(p.before_image_rows for m in pipeline.manifests() for p in m.parts) == 3
    plain = rows_of_keyed(pipeline, bag.full_name("other"))[-1]
    assert not [name for name in plain if name.startswith(("_tl_image", "_tl_before_t"))]


def rows_of_keyed(pipeline: Pipeline[ConformingSource], table: str) -> list[dict[str, Any]]:
    store = open_store(pipeline.settings.store)
    parts = [part for m in pipeline.manifests() for part in m.parts if part.table == table]
    return [
        r for p in parts for r in pq.read_table(io.BytesIO(store.get(p.key) or b"")).to_pylist()
    ]
