"""The governor: rows that follow the time they take, and limits on the source's load."""

from __future__ import annotations

import pytest

from tests.fixtures.core import FACTS, Driver, limits_with, make_core
from tideline.contract.request import RequestState
from tideline_capture.core.chunks import ChunkRead
from tideline_capture.core.facts import SourceLoad
from tideline_capture.core.snapshots.governor import LOAD_VALID_S, ROWS_MIN, Governor

T = "shop.t"
BUSY = limits_with(replica_lag_max_s=5.0, running_queries_max=10, log_backlog_max_bytes=1 << 30)


def governor(target_ms: int = 1000) -> Governor:
    return Governor(limits_with(chunk_target_ms=target_ms))


@pytest.mark.parametrize(
    ("took_s", "expected"),
    [(1.0, 1000), (0.8, 1250), (2.0, 500), (10.0, 500), (0.001, 2000), (0.0, 10_000)],
)
def test_rows_follow_the_time_they_take(took_s: float, expected: int) -> None:
    made = governor()
    made.saw_chunk(T, 1000, took_s=took_s)
    assert made.rows_max(T, 10_000) == expected
    assert made.rows_max("shop.other", 10_000) == 10_000


def test_rows_stay_within_what_was_asked_for_and_the_least() -> None:
    made = governor()
    made.saw_chunk(T, 9_000, took_s=0.1)
    assert made.rows_max(T, 10_000) == 10_000
    for _ in range(10):
        made.saw_chunk(T, made.rows_max(T, 10_000), took_s=60)
    assert made.rows_max(T, 10_000) == ROWS_MIN
    assert made.rows_max(T, 5) == 5


def test_an_empty_chunk_and_no_target_say_nothing() -> None:
    made = governor()
    made.saw_chunk(T, 0, took_s=60)
    assert made.rows_max(T, 10_000) == 10_000
    made = governor(target_ms=0)
    made.saw_chunk(T, 1000, took_s=60)
    assert made.rows_max(T, 10_000) == 10_000


def test_a_chunk_that_is_not_full_shows_only_what_is_too_many() -> None:
    """A repair of one key must not make the chunks of the dump beside it small."""
    made = governor()
    made.saw_chunk(T, 1, took_s=0.001, full=False)
    assert made.rows_max(T, 10_000) == 10_000
    made.saw_chunk(T, 800, took_s=2.0, full=False)
    assert made.rows_max(T, 10_000) == 400


def test_the_end_of_a_table_is_no_full_chunk() -> None:
    driver = Driver(make_core(limits=limits_with(chunk_target_ms=1000, chunk_rows=5_000)))
    driver.catalog(FACTS)
    order = driver.order()
    read = ChunkRead(order.token, ("3",), complete=True, rows=3, took_s=0.001)
    driver.core.on_chunk(read, now=driver.now)
    governed = driver.core.dumps.scheduler.governor.rows_max(order.table, order.rows_max)
    assert governed == order.rows_max == 5_000


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (SourceLoad(replica_lag_s=6), "replica lag 6 s, limit 5 s"),
        (SourceLoad(running_queries=11), "running queries 11, limit 10"),
        (SourceLoad(log_backlog_bytes=3 << 29), "log backlog 1536 MiB, limit 1024 MiB"),
        (SourceLoad(6, 11), "replica lag 6 s, limit 5 s; running queries 11, limit 10"),
        (SourceLoad(5, 10, 1 << 30), None),
        (SourceLoad(), None),
    ],
)
def test_limits(load: SourceLoad, words: str | None) -> None:
    made = Governor(BUSY)
    made.saw_load(load, now=1.0)
    assert made.throttled_by(now=2.0) == words
    assert made.throttled_by(now=2.0 + LOAD_VALID_S) is None


def test_a_dump_waits_says_why_and_goes_on() -> None:
    driver = Driver(make_core(limits=BUSY))
    driver.catalog(FACTS)
    assert driver.core.next_order(now=driver.now) is None, "nobody has looked at the load yet"
    driver.core.on_load(SourceLoad(), now=driver.now)
    driver.dump([(1, "a")], complete=False)
    driver.core.on_load(SourceLoad(replica_lag_s=60), now=driver.now)
    assert driver.core.next_order(now=driver.now + 1) is None
    (answer,) = driver.core.answers(now=driver.now + 1)
    assert answer.state is RequestState.THROTTLED
    assert answer.tables[0].state is RequestState.THROTTLED
    assert answer.tables[0].waiting == "replica lag 60 s, limit 5 s"
    driver.core.on_load(SourceLoad(replica_lag_s=1), now=driver.now + 2)
    assert driver.order().after_key == ("1",)
