"""Dumps under control, on real servers: what is read, when, how fast, and what is said of it."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Barrier, Event, Thread
from typing import Any, Self

import psycopg2
import pymysql
import pytest
from psycopg2.extras import PhysicalReplicationConnection

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import PATIENCE_S, Pipeline, PipelineFactory, WorkerProcess, poll
from tests.fixtures.services import Database
from tests.fixtures.sources import ConformingSource, PostgresSource
from tests.support.checks import Captured, check_equal, read_chain
from tideline.contract.manifest import ManifestKind
from tideline.contract.open_state import TableCondition
from tideline.contract.request import (
    Action,
    Answer,
    DumpRequest,
    KeyRange,
    RequestState,
    TableProgress,
    TimeRange,
)
from tideline_console import control
from tideline_console.control import make_command
from tideline_console.status import read_status

both = pytest.mark.parametrize("conforming", ["postgres", "mariadb"], indirect=True)
ROWS = 600
LOG_ONLY = {"initial": "log-only"}
QUICK = {"heartbeat_s": 0.2, "takeover_after_s": 0.8, "load_interval_s": 0.2}


class Shop:
    """A pipeline whose tables are not dumped before someone asks, and one asker."""

    def __init__(self, pipeline: Pipeline[ConformingSource]) -> None:
        self.pipeline = pipeline
        self.source = pipeline.database
        self.control_client = pipeline.control_client()

    @classmethod
    @contextmanager
    def of(cls, pipeline: Pipeline[ConformingSource]) -> Iterator[Self]:
        one = cls(pipeline)
        yield one
        one.control_client.close()

    def name(self, table: str) -> str:
        return self.source.full_name(table)

    def start(self, *tables: str) -> WorkerProcess:
        """A worker that knows these tables."""
        worker = self.pipeline.start()
        wanted = {self.name(table) for table in tables}
        self.pipeline.wait_state("the tables are known", lambda s: wanted <= s.tables.keys())
        return worker

    def ask(self, request_id: str, table: str, **scope: Any) -> None:
        self.control_client.ask(DumpRequest(request_id, (self.name(table),), **scope))

    def tell(self, action: Action, *requests: str, **throttle: str) -> None:
        """A command, as the terminal gives it; to all requests without ids."""
        command = make_command(action, requests, every=not requests, **throttle)
        assert control.run(self.pipeline.settings, command) == 0

    def until(self, request_id: str, what: str, holds: Callable[[Answer], bool]) -> Answer:
        """The first answer of which ``holds`` is true."""
        found: list[Answer] = []

        def looked() -> bool:
            answer = self.control_client.answer(request_id)
            found[:] = [] if answer is None else [answer]
            return bool(found) and holds(found[0])

        try:
            poll(f"request {request_id} {what}", looked)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last answer is {found}") from None
        return found[0]

    def done(self, *requests: str) -> list[Answer]:
        """The final answers, each ``done``."""
        answers = [self.until(one, "ends", lambda a: a.state.final) for one in requests]
        assert {answer.state for answer in answers} == {RequestState.DONE}, answers
        return answers

    def pass_manifests(self, count: int) -> None:
        """Return when the worker has written ``count`` more."""
        end = self.pipeline.manifest().manifest_number + count
        poll("the worker writes on", lambda: self.pipeline.manifest().manifest_number >= end)

    def read_by(self, request_id: str, table: str, captured: Captured) -> list[tuple[str, Any]]:
        """Operation and key of the rows that a request brought: no other one was open."""
        manifests = captured.manifests
        first = next(m.first_seq for m in manifests if request_id in m.accepted)
        ended = [m for m in manifests if request_id in {a.request_id for a in m.finished}]
        last = ended[0].last_seq
        changes = captured.table(self.name(table))
        return [(one.op, one.key) for one in changes if first <= one.seq <= last]


@pytest.fixture
def shop(conforming: ConformingSource, pipeline_of: PipelineFactory) -> Iterator[Shop]:
    with Shop.of(pipeline_of(conforming, source=LOG_ONLY, capture=QUICK)) as one:
        yield one


def both_under_way(answer: Answer) -> bool:
    return [one.chunks > 0 and not one.state.final for one in answer.tables] == [True, True]


def progress(answer: Answer) -> TableProgress:
    (table,) = answer.tables
    return table


# -- ranges ----------------------------------------------------------------------------------------

WORDS = ("Äpfel", "Apfel", "b", "Birne", "birnen", "BIRNER", "Z", "zebra", "ö", "Öl", "a b", "ab")


@both
def test_ranges_are_the_databases_own(shop: Shop) -> None:
    """Of texts in a collation, of several columns; and keys that the source lacks are deletes."""
    source = shop.source
    text = "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_german2_ci"
    if is_postgres(source):
        source.run("CREATE EXTENSION citext")
        text = "citext"
    source.run(f"CREATE TABLE words (w {text}, n int, PRIMARY KEY (w, n))")
    rows = ", ".join(f"('{word}', {n})" for word in WORDS for n in (-1, 5, 30))
    source.run(f"INSERT INTO words VALUES {rows}")  # noqa: S608  words of our own
    source.make("items")
    source.fill("items", 1, 50)
    worker = shop.start("words", "items")
    shop.ask("range", "words", key_range=KeyRange(("b", "5"), ("ö",)), chunk_rows=4)
    shop.done("range")
    shop.ask("rest", "words", key_range=KeyRange(("ö",), None), chunk_rows=4)
    shop.done("rest")
    keys = tuple((str(key),) for key in (15, 7, 999, -3))
    shop.ask("beside", "items", key_range=KeyRange(("10",), ("20",)), keys=keys, chunk_rows=3)
    shop.done("beside")
    span = TimeRange("at", "2024-01-01 12:00:00", "2024-01-01 18:00:00")
    shop.ask("time", "items", time=span, keys=(("14",), ("1000",)), chunk_rows=4)
    shop.done("time")
    worker.terminate()
    captured = read_chain(shop.pipeline.settings)
    wanted = answered(source, "SELECT w, n FROM words WHERE {from_b5} AND w < 'ö' ORDER BY w, n")
    assert [key for _, key in shop.read_by("range", "words", captured)] == wanted
    wanted = answered(source, "SELECT w, n FROM words WHERE w >= 'ö' ORDER BY w, n")
    assert wanted
    assert [key for _, key in shop.read_by("rest", "words", captured)] == wanted
    shadow = [(op, int(str(key[0]))) for op, key in shop.read_by("beside", "items", captured)]
    assert shadow[:10] == [("r", key) for key in range(10, 20)]
    assert sorted(shadow[10:]) == [("d", -3), ("d", 999), ("r", 7), ("r", 15)]
    timed = [(op, int(str(key[0]))) for op, key in shop.read_by("time", "items", captured)]
    assert timed == [*(("r", key) for key in range(12, 18)), ("r", 14), ("d", 1000)]
    assert not [
        delete_before
        for manifest in captured.manifests
        for delete_before in manifest.deletes_before
    ]


@both
def test_what_is_no_key_fails_and_is_quoted_nowhere(shop: Shop) -> None:
    """Keys and bounds are row values: what is wrong with them is said without them."""
    shop.source.make("items")
    shop.source.fill("items", 1, 20)
    worker = shop.start("items")
    odd = "canary-77"
    shop.ask("keys", "items", keys=((odd,),))
    shop.ask("range", "items", key_range=KeyRange((odd,), None))
    shop.ask("time", "items", time=TimeRange("at", odd, "2024-01-02"))
    for request in ("keys", "range", "time"):
        answer = shop.until(request, "ends", lambda a: a.state.final)
        assert odd not in repr(answer)
        # A MySQL key that is no value of its type is a key that the table does not have.
        gone = request == "keys" and not is_postgres(shop.source)
        assert answer.state is RequestState.FAILED or gone, answer
    shop.ask("wide", "items", key_range=KeyRange((odd, "2"), None))
    refused = shop.until("wide", "ends", lambda a: a.state.final)
    assert refused.state is RequestState.REFUSED
    assert "more texts than" in str(refused.error) and odd not in repr(refused)
    assert odd not in worker.output()
    worker.terminate()


def is_postgres(source: ConformingSource) -> bool:
    return source.full_name("x") == "public.x"


def answered(source: ConformingSource, query: str) -> list[tuple[str, ...]]:
    """What the database says, as texts."""
    with source.session() as cursor:
        cursor.execute(query.format(from_b5="(w > 'b' OR (w = 'b' AND n >= 5))"))
        return [tuple(str(value) for value in row) for row in cursor.fetchall()]


# -- commands --------------------------------------------------------------------------------------


@both
def test_pause_outlives_the_worker_and_resume_goes_on(shop: Shop) -> None:
    shop.source.make("items")
    shop.source.fill("items", 1, ROWS)
    shop.source.run("ANALYZE items" if is_postgres(shop.source) else "ANALYZE TABLE items")
    first = shop.start("items")
    shop.ask("big", "items", chunk_rows=20, delay_ms=500)
    answer = shop.until("big", "says how long", lambda a: progress(a).remaining_s is not None)
    reported = progress(answer)
    rate, estimate = reported.rows_per_s or 0, reported.rows_estimate or 0
    assert 0 < rate <= 20 / 0.5
    assert ROWS / 2 <= estimate <= ROWS * 2
    assert reported.remaining_s == pytest.approx(
        (estimate - reported.rows) / rate, rel=0.05, abs=0.1
    )
    shop.tell(Action.PAUSE, "big")
    read = first.points()["between-chunks"]
    shop.pass_manifests(3)
    assert first.points()["between-chunks"] == read
    answer = shop.until("big", "is paused", lambda a: a.state is RequestState.PAUSED)
    assert 0 < progress(answer).rows < ROWS
    first.kill()
    (before,) = shop.pipeline.state().requests
    second = shop.pipeline.start()
    second.wait_point("reading")
    shop.pass_manifests(3)
    assert second.points()["between-chunks"] == 0
    assert shop.pipeline.state().requests == (before,)
    shop.tell(Action.TUNE, "big", chunk_rows="100", delay_ms="0")
    shop.tell(Action.RESUME, "big")
    (done,) = shop.done("big")
    left = ROWS - before.dumps[0].rows
    assert progress(done).chunks <= before.dumps[0].chunks + left // 100 + 2
    second.terminate()
    captured = check_equal(shop.pipeline.settings, shop.source, [shop.name("items")])
    found = [(op, int(str(key[0]))) for op, key in shop.read_by("big", "items", captured)]
    assert found == [("r", key) for key in range(1, ROWS + 1)]


@both
def test_a_repair_overtakes_and_dumps_go_side_by_side(shop: Shop) -> None:
    for table, rows in (("items", 20 * ROWS), ("other", ROWS)):
        shop.source.make(table)
        shop.source.fill(table, 1, rows)
    worker = shop.start("items", "other")
    shop.ask("big", "items", chunk_rows=5)
    shop.ask("beside", "other", chunk_rows=10, delay_ms=500)
    for request in ("big", "beside"):
        shop.until(request, "is at work", lambda a: progress(a).chunks >= 2)
    assert len(shop.pipeline.state().requests) == 2
    # A range ranks behind what is older, unless its priority says otherwise.
    repair = KeyRange(("100",), ("102",))
    shop.ask("repair", "items", key_range=repair, keys=(("7",), ("9000",)), priority=5)
    shop.done("repair")
    big = shop.until("big", "goes on", lambda a: a.state is RequestState.RUNNING)
    assert progress(big).rows < 20 * ROWS
    shop.tell(Action.PAUSE)
    shop.until("beside", "is paused", lambda a: a.state is RequestState.PAUSED)
    shop.tell(Action.CANCEL, "big")
    cancelled = shop.until("big", "ends", lambda a: a.state.final)
    assert cancelled.state is RequestState.FAILED
    assert "cancelled" in str(cancelled.error)
    shop.tell(Action.TUNE, chunk_rows="200", delay_ms="0")
    shop.tell(Action.RESUME)
    shop.done("beside")
    shop.tell(Action.TUNE, chunk_rows="default", delay_ms="default")
    shop.control_client.ask(DumpRequest("all", ("*.*",), chunk_rows=40, delay_ms=1_000))
    shop.until("all", "reads both tables", both_under_way)
    shop.tell(Action.TUNE, "all", chunk_rows="1000", delay_ms="0")
    shop.done("all")
    worker.terminate()
    captured = read_chain(shop.pipeline.settings)
    manifests = captured.manifests
    accepted = next(m.manifest_number for m in manifests if "repair" in m.accepted)
    ended = next(
        m.manifest_number for m in manifests if "repair" in {a.request_id for a in m.finished}
    )
    meanwhile = [
        part.rows
        for manifest in manifests[accepted:ended]
        for part in manifest.parts
        if part.table == shop.name("items")
    ]
    assert sum(meanwhile) <= 4 * 5 + 4, "four chunks were under way, and the repair has two"
    answers = {a.request_id: a.state for a in shop.pipeline.state().recent}
    assert answers["big"] is RequestState.FAILED
    assert answers["beside"] is answers["repair"] is RequestState.DONE


# -- the source's load, and the settings file ------------------------------------------------------


@contextmanager
def sleepers(source: ConformingSource, count: int) -> Iterator[None]:
    """So many sessions that are at work until the context ends."""

    def sleep(cursor: Any, begun: Barrier) -> None:
        begun.wait()
        with suppress(psycopg2.errors.QueryCanceled, pymysql.OperationalError):
            cursor.execute(f"SELECT {'pg_sleep' if is_postgres(source) else 'SLEEP'}(600)")

    begun = Barrier(count + 1)
    with ExitStack() as stack:
        cursors = [stack.enter_context(source.session()) for _ in range(count)]
        stop = stack.enter_context(source.session())
        threads = [Thread(target=sleep, args=(cursor, begun)) for cursor in cursors]
        own_id = "pg_backend_pid" if is_postgres(source) else "CONNECTION_ID"
        ids = []
        for cursor in cursors:
            cursor.execute(f"SELECT {own_id}()")
            ids.append(cursor.fetchone()[0])
        for thread in threads:
            thread.start()
        begun.wait()
        try:
            yield
        finally:
            kill = "SELECT pg_cancel_backend({})" if is_postgres(source) else "KILL QUERY {}"
            while any(thread.is_alive() for thread in threads):
                for one in ids:
                    stop.execute(kill.format(one))
                threads[0].join(0.05)


@both
def test_a_busy_source_is_spared(
    conforming: ConformingSource, pipeline_of: PipelineFactory
) -> None:
    """Chunks shrink to the time that they may take; and none is read above the limit."""
    limits = {**QUICK, "running_queries_max": 4, "chunk_target_ms": 1}
    with Shop.of(pipeline_of(conforming, source=LOG_ONLY, capture=limits)) as shop:
        shop.source.make("items")
        shop.source.fill("items", 1, 2 * ROWS)
        worker = shop.start("items")
        shop.ask("big", "items", chunk_rows=ROWS // 2, delay_ms=2_000)
        shop.until("big", "is at work", lambda a: a.state is RequestState.RUNNING)
        with sleepers(shop.source, 9):
            slowed = shop.until("big", "is throttled", lambda a: a.state is RequestState.THROTTLED)
            assert str(progress(slowed).waiting).startswith("running queries ")
            assert str(progress(slowed).waiting).endswith(", limit 4")

            def shown() -> bool:
                (dump,) = read_status(shop.pipeline.settings).dumps
                return str(progress(dump).waiting).startswith("running queries ")

            poll("the status shows it", shown)
            shop.ask("new", "items", keys=(("1",),))
            new = shop.until("new", "is throttled", lambda a: progress(a).waiting is not None)
            assert new.state is RequestState.ACCEPTED
            shop.pass_manifests(1)
            read = worker.points()["between-chunks"]
            shop.pass_manifests(3)
            assert worker.points()["between-chunks"] == read
        shop.tell(Action.TUNE, "big", delay_ms="0")
        big, _ = shop.done("big", "new")
        assert progress(big).chunks >= 6, "four without a limit on their time"
        worker.terminate()
    check_equal(shop.pipeline.settings, shop.source, [shop.name("items")])


class Standby(Thread):
    """A replica, as far as its primary can tell, that is ``lag_s`` behind."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.lag_s = 0.0
        self._connection = psycopg2.connect(dsn, connection_factory=PhysicalReplicationConnection)
        self._stopping = Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)
        self._connection.close()

    def run(self) -> None:
        cursor: Any = self._connection.cursor()
        cursor.execute("IDENTIFY_SYSTEM")
        cursor.start_replication(start_lsn=cursor.fetchone()[2])
        came: deque[tuple[float, int]] = deque()
        while not self._stopping.wait(0.02):
            while cursor.read_message() is not None:
                came.append((time.monotonic(), cursor.wal_end))
            reached = 0
            while came and came[0][0] <= time.monotonic() - self.lag_s:
                _, reached = came.popleft()
            if reached:
                cursor.send_feedback(reached, reached, reached, force=True)


def test_a_replica_that_falls_behind_is_waited_for(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    source: ConformingSource = PostgresSource(database)
    limits = {**QUICK, "replica_lag_max_s": 0.7}
    one = pipeline_of(source, source=LOG_ONLY, capture=limits)
    with Shop.of(one) as shop, Standby(database.dsn) as standby:
        source.make("items")
        source.fill("items", 1, ROWS)
        worker = shop.start("items")
        shop.ask("big", "items", chunk_rows=20, delay_ms=1_000)
        shop.until("big", "is at work", lambda a: a.state is RequestState.RUNNING)
        standby.lag_s = 1.2
        slowed = shop.until("big", "is throttled", lambda a: a.state is RequestState.THROTTLED)
        waiting = re.fullmatch(r"replica lag (\S+) s, limit 0\.7 s", str(progress(slowed).waiting))
        assert waiting is not None and float(waiting[1]) > 0.7
        standby.lag_s = 0.0
        shop.tell(Action.TUNE, "big", delay_ms="0", chunk_rows="400")
        shop.done("big")
        worker.terminate()


def test_the_settings_file_is_followed(database: Database, pipeline_of: PipelineFactory) -> None:
    """Tables come and go, and limits change, while the worker runs."""
    source: ConformingSource = PostgresSource(database)
    for table in ("items", "late"):
        source.make(table)
        source.fill(table, 1, 200)
    items, late = source.full_name("items"), source.full_name("late")
    one = pipeline_of(source, source={"tables": [items]}, capture=QUICK)
    with Shop.of(one) as shop:
        worker = shop.start("items")
        first = one.wait_state("the first dump ends", lambda s: not s.requests)
        assert set(first.tables) == {items}
        slow = {"log_backlog_max_bytes": 1, "chunk_rows": 10, "delay_ms": 100}
        pipeline_of(source, source={"tables": [late]}, capture={**QUICK, **slow})
        asked = one.wait_state("the new table is taken up", lambda s: bool(s.requests))
        request_id = asked.requests[0].request.request_id
        shop.until(
            request_id, "waits", lambda a: str(progress(a).waiting).startswith("log backlog ")
        )
        pipeline_of(source, source={"tables": [late]}, capture=QUICK)
        one.wait_state("the new table is known", lambda s: late in s.tables)
        one.wait_state("the new table is dumped", lambda s: not s.requests)
        quarantined = TableCondition.QUARANTINED
        one.wait_state(
            "the old one is left out", lambda s: s.tables[items].condition is quarantined
        )
        source.run("UPDATE items SET ver = 5", "UPDATE late SET ver = 7")
        worker.terminate()
    one.drain()
    captured = check_equal(one.settings, source, [late])
    assert {change.op for change in captured.table(late)} == {"r", "u"}
    assert {change.op for change in captured.table(items)} == {"r"}
    takeovers = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert len(takeovers) == 1, "that of the worker at the end"


# -- Redis -----------------------------------------------------------------------------------------


def test_what_was_accepted_is_found_without_redis(
    database: Database, pipeline_of: PipelineFactory, valkey: ValkeyServer
) -> None:
    """Flushed, with the worker killed: open requests, and how they ended, are in the chain."""
    source: ConformingSource = PostgresSource(database)
    one = pipeline_of(source, source=LOG_ONLY, capture=QUICK)
    with Shop.of(one) as shop:
        shop.source.make("items")
        shop.source.fill("items", 1, ROWS)
        worker = shop.start("items")
        shop.ask("big", "items", chunk_rows=20, delay_ms=1_000)
        shop.ask("stopped", "items", chunk_rows=20, delay_ms=1_000)
        shop.until("big", "is at work", lambda a: progress(a).chunks >= 2)
        shop.tell(Action.CANCEL, "stopped")
        worker.kill()
        valkey.flush()
        status = read_status(one.settings)
        (open_one,) = status.dumps
        assert (open_one.request_id, open_one.state) == ("big", RequestState.RUNNING)
        assert progress(open_one).rows >= 40
        (ended,) = status.ended
        assert (ended.request_id, ended.state) == ("stopped", RequestState.FAILED)
        assert "it was cancelled by" in str(ended.error)
        second = one.start()
        shop.tell(Action.TUNE, "big", delay_ms="0")
        end = one.wait_state("the dump ends", lambda s: not s.requests)
        valkey.stop()
        try:
            status = read_status(one.settings)
        finally:
            valkey.start()
        assert status.control_error is not None
        assert {a.request_id: a.state for a in status.ended} == {
            "stopped": RequestState.FAILED,
            "big": RequestState.DONE,
        }
        assert {a.request_id for a in end.recent} >= {"big", "stopped"}
        second.terminate()
    check_equal(one.settings, source, ["public.items"])
