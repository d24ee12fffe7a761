"""The chunk that is read while the one before it waits for its high watermark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.core import (
    BEFORE_LATE,
    FACTS,
    LATE,
    OTHER,
    OTHER_FACTS,
    TABLE,
    Driver,
    emitted,
    facts_with,
    limits_with,
    make_core,
    make_rows,
    started,
)
from tideline.contract.request import RequestState
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder
from tideline_capture.core.events import WatermarkKind
from tideline_capture.core.facts import Snapshot

AFTER_LATE = Snapshot(LATE + 1, LATE + 1, ())


def two_chunks(driver: Driver) -> tuple[ChunkOrder, ChunkOrder]:
    """The first chunk's rows are 1 and 2; it and the order of the second are under way."""
    driver.ask()
    first = driver.order()
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a"), (2, "b")], complete=False)
    return first, driver.order()


def pass_window(driver: Driver, order: ChunkOrder) -> None:
    driver.mark(WatermarkKind.LOW, order.token)
    driver.mark(WatermarkKind.HIGH, order.token)


def dumped(driver: Driver) -> list[tuple[int, str | None]]:
    return [(row[2], row[3]) for row in emitted(driver.close_segment()) if row[1] == "r"]


def test_it_begins_behind_the_chunk_that_waits() -> None:
    driver = started()
    first, second = two_chunks(driver)
    assert second.after_key == ("2",)
    assert driver.core.next_order(now=driver.now + 9) is None
    driver.answer(second, [(3, "c")])
    driver.mark(WatermarkKind.HIGH, first.token)
    pass_window(driver, second)
    sealed = driver.close_segment()
    assert [row[2] for row in emitted(sealed)] == [1, 2, 3]
    assert sealed.finished[0].tables[0].rows == 3


def test_it_is_worth_nothing_when_the_one_before_must_be_read_again() -> None:
    driver = started()
    first, second = two_chunks(driver)
    driver.answer(second, [(3, "c")])
    driver.core.dumps.disturb(TABLE, "a truncate")
    driver.mark(WatermarkKind.HIGH, first.token)
    pass_window(driver, second)
    again = driver.order()
    assert again.after_key is None
    driver.mark(WatermarkKind.LOW, again.token)
    driver.answer(again, [(1, "a"), (2, "b"), (3, "c")])
    driver.mark(WatermarkKind.HIGH, again.token)
    assert [key for key, _ in dumped(driver)] == [1, 2, 3]


def test_a_dump_that_begins_again_takes_nothing_of_it() -> None:
    driver = started()
    first, second = two_chunks(driver)
    driver.catalog(facts_with(storage="11"))
    driver.answer(second, [(3, "c")], facts=facts_with(storage="11"))
    driver.mark(WatermarkKind.HIGH, first.token)
    pass_window(driver, second)
    sealed = driver.close_segment()
    assert emitted(sealed) == [] and sealed.deletes_before == ()
    assert driver.order().after_key is None


def test_one_whose_window_is_older_than_the_dump_that_began_again_is_read_again() -> None:
    """The new first chunk ends where the old one did, so that the old second one follows again. But
    a row that it left to an event of its window would lie behind the floor, and be deleted."""
    driver = started()
    first, second = two_chunks(driver)
    rewritten = facts_with(storage="11")
    driver.catalog(rewritten)
    driver.mark(WatermarkKind.HIGH, first.token)
    driver.mark(WatermarkKind.LOW, second.token)
    driver.change(("u", 3, "new"))
    again = driver.order()
    assert again.after_key is None
    driver.mark(WatermarkKind.LOW, again.token)
    driver.answer(again, [(1, "a"), (2, "b")], facts=rewritten, complete=False)
    driver.mark(WatermarkKind.HIGH, again.token)
    driver.answer(second, [(3, "new")], facts=rewritten)
    driver.mark(WatermarkKind.HIGH, second.token)
    if driver.core.state.requests.open:
        driver.dump([(3, "new")], facts=rewritten)
    sealed = driver.close_segment()
    (delete_before,) = sealed.deletes_before
    assert {row[2] for row in emitted(sealed) if row[0] > delete_before.seq} == {1, 2, 3}


@pytest.mark.parametrize("shown_by", ["the next chunk", "a snapshot"])
def test_what_it_shows_is_not_forgotten_for_the_one_before(shown_by: str) -> None:
    """The first chunk missed a transaction that ended before its low watermark. That the next
    chunk, or a snapshot taken after it, shows that transaction says nothing of the first."""
    driver = started()
    driver.ask()
    first = driver.order()
    driver.answer(first, [(1, "old"), (2, "b")], complete=False, snapshot=BEFORE_LATE)
    second = driver.order()
    driver.answer(second, [(3, "c")], snapshot=AFTER_LATE)
    if shown_by == "a snapshot":
        driver.core.on_snapshot(AFTER_LATE)
    driver.log(make_rows([("u", 1, "new")], driver.core.state.next_seq), xid=LATE)
    pass_window(driver, first)
    pass_window(driver, second)
    assert dumped(driver) == []


def test_a_snapshot_after_it_was_read_is_not_held_against_it() -> None:
    """The second chunk missed a transaction that ended before its own low watermark."""
    driver = started()
    first, second = two_chunks(driver)
    driver.answer(second, [(3, "old")], complete=False, snapshot=BEFORE_LATE)
    driver.core.on_snapshot(AFTER_LATE)
    driver.log(make_rows([("u", 3, "new")], driver.core.state.next_seq), xid=LATE)
    driver.mark(WatermarkKind.HIGH, first.token)
    driver.core.on_snapshot(AFTER_LATE)
    pass_window(driver, second)
    assert dumped(driver) == [(1, "a"), (2, "b")]
    assert driver.order().after_key == ("2",)


def test_ids_are_forgotten_while_chunks_follow_each_other() -> None:
    core = make_core(limits=limits_with(unseen_transactions_max=3))
    driver = Driver(core)
    driver.catalog(FACTS)
    driver.dump([])
    driver.ask()
    order = driver.order()
    for number in range(1, 20):
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(number, "x")], complete=False)
        ahead = driver.order()
        driver.change(("u", 99, "x"))
        driver.mark(WatermarkKind.HIGH, order.token)
        order = ahead
    assert core.dumps.redone == 0 and core.dumps.unseen.complete


def test_nothing_is_read_ahead_of_a_fence() -> None:
    driver = started()
    driver.core.dumps.scheduler.joined(TABLE)
    driver.ask()
    first = driver.order()
    assert first.fence
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a")], complete=False)
    assert driver.core.next_order(now=driver.now) is None
    driver.mark(WatermarkKind.HIGH, first.token)
    assert not driver.order().fence


def test_nothing_is_read_ahead_where_a_pause_is_wanted() -> None:
    driver = started()
    driver.ask(delay_ms=500)
    first = driver.order()
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a")], complete=False)
    assert driver.core.next_order(now=driver.now) is None
    driver.mark(WatermarkKind.HIGH, first.token)
    assert driver.core.next_order(now=driver.now + 0.4) is None
    assert driver.core.next_order(now=driver.now + 0.6) is not None


def test_after_the_last_chunk_of_a_table_comes_the_next_table() -> None:
    driver = started()
    driver.catalog(FACTS, OTHER_FACTS)
    driver.dump([], facts=OTHER_FACTS)
    driver.ask(tables=(TABLE, OTHER))
    first = driver.order()
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a")])
    second = driver.order()
    assert (second.table, second.after_key) == (OTHER, None)
    driver.answer(second, [(1, "a")], facts=OTHER_FACTS)
    driver.mark(WatermarkKind.HIGH, first.token)
    pass_window(driver, second)
    assert driver.close_segment().finished[0].state is RequestState.DONE


def test_given_keys_overtake_and_go_on_where_they_were() -> None:
    driver = started()
    driver.ask(keys=(("1",), ("2",)), chunk_rows=1)
    first = driver.order()
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a")])
    assert driver.core.next_order(now=driver.now) is None
    driver.mark(WatermarkKind.HIGH, first.token)
    assert driver.order().keys == (("2",),)


@pytest.mark.parametrize("retry", [True, False])
def test_when_it_cannot_be_read_the_one_before_still_counts(retry: bool) -> None:
    driver = started()
    first, second = two_chunks(driver)
    driver.core.on_chunk(ChunkFailed(second.token, "locked", None, retry=retry), now=driver.now)
    assert driver.core.next_order(now=driver.now) is None
    driver.mark(WatermarkKind.HIGH, first.token)
    if retry:
        assert dumped(driver) == [(1, "a"), (2, "b")]
        assert driver.order().after_key == ("2",)
    else:
        assert driver.close_segment().finished[0].state is RequestState.FAILED


def test_behind_a_chunk_that_is_worth_nothing_the_dump_goes_on_where_it_is() -> None:
    """Not behind that chunk's last key: each one after it would be worth nothing either."""
    driver = started()
    first, second = two_chunks(driver)
    driver.answer(second, [(3, "c"), (4, "d")], complete=False)
    driver.core.dumps.disturb(TABLE, "a truncate")
    driver.mark(WatermarkKind.HIGH, first.token)
    assert driver.order().after_key is None


class TestSideBySide:
    """Several tables at once, and several chunks of one table."""

    def driver(self, **limits: Any) -> Driver:
        driver = Driver(make_core(limits=limits_with(**limits)))
        driver.catalog(FACTS, OTHER_FACTS)
        driver.dump([])
        driver.dump([], facts=OTHER_FACTS)
        driver.close_segment()
        return driver

    def test_two_tables_are_read_at_once_and_a_third_waits(self) -> None:
        driver = self.driver(parallel_dumps_max=2)
        driver.ask("a", tables=(TABLE, OTHER))
        first, second = driver.order(), driver.order()
        assert {first.table, second.table} == {TABLE, OTHER}
        assert driver.core.next_order(now=driver.now) is None
        for order, facts in ((second, OTHER_FACTS), (first, FACTS)):
            driver.mark(WatermarkKind.LOW, order.token)
            driver.answer(order, [(1, "x")], facts=facts)
        for order in (second, first):
            driver.mark(WatermarkKind.HIGH, order.token)
        assert len(driver.close_segment().deletes_before) == 2

    def test_one_table_is_never_read_for_two_requests_at_once(self) -> None:
        driver = self.driver(parallel_dumps_max=2)
        driver.ask("a")
        driver.ask("b")
        driver.order()
        assert driver.core.next_order(now=driver.now + 100) is None

    def test_a_repair_comes_in_at_the_next_chunk(self) -> None:
        driver = self.driver(parallel_dumps_max=1, chunks_ahead_max=2)
        driver.ask("long")
        first = driver.order()
        driver.mark(WatermarkKind.LOW, first.token)
        driver.answer(first, [(1, "a")], complete=False)
        second = driver.order()
        driver.ask("repair", tables=(OTHER,), keys=(("7",),))
        assert driver.core.next_order(now=driver.now + 100) is None
        driver.mark(WatermarkKind.HIGH, first.token)
        driver.mark(WatermarkKind.LOW, second.token)
        driver.answer(second, [(2, "b")], complete=False)
        driver.mark(WatermarkKind.HIGH, second.token)
        assert driver.order().request_id == "repair"

    def test_chunks_whose_marks_come_in_another_order_are_emitted_in_that_of_keys(self) -> None:
        """The later chunk's window stays open until its turn: what changes meanwhile wins."""
        driver = self.driver(chunks_ahead_max=2)
        driver.ask()
        scheduler = []
        for key in (1, 2, 3):
            order = driver.order()
            scheduler.append(order)
            driver.mark(WatermarkKind.LOW, order.token)
            driver.answer(order, [(key, "chunk")], complete=key == 3)
        assert driver.core.next_order(now=driver.now + 100) is None
        driver.mark(WatermarkKind.HIGH, scheduler[2].token)
        driver.mark(WatermarkKind.HIGH, scheduler[1].token)
        assert dumped_so_far(driver) == []
        driver.change(("u", 3, "log"))
        driver.mark(WatermarkKind.HIGH, scheduler[0].token)
        sealed = driver.close_segment()
        assert [row[1:] for row in emitted(sealed)] == [
            ("u", 3, "log"),
            ("r", 1, "chunk"),
            ("r", 2, "chunk"),
        ]
        assert sealed.finished[0].state is RequestState.DONE

    def test_what_stood_behind_a_chunk_that_is_read_again_is_of_use_once_it_was(self) -> None:
        driver = self.driver(chunks_ahead_max=2)
        driver.ask()
        first = driver.order()
        driver.mark(WatermarkKind.LOW, first.token)
        driver.answer(first, [(1, "a")], complete=False)
        second = driver.order()
        driver.core.on_chunk(ChunkFailed(first.token, "locked", None, retry=True), now=driver.now)
        again = driver.order()
        assert again.after_key is None
        driver.mark(WatermarkKind.LOW, second.token)
        driver.answer(second, [(2, "b")])
        driver.mark(WatermarkKind.LOW, again.token)
        driver.answer(again, [(1, "a")], complete=False)
        driver.mark(WatermarkKind.HIGH, again.token)
        driver.mark(WatermarkKind.HIGH, second.token)
        assert dumped(driver) == [(1, "a"), (2, "b")]


def dumped_so_far(driver: Driver) -> list[int]:
    return [
        key
        for rows in driver.core.state.segment.rows
        for key in rows.batch.column("id").to_pylist()
    ]


@pytest.mark.parametrize("keys", [(("7",),), None], ids=["given keys", "by priority"])
def test_a_repair_of_the_same_table_comes_before_what_would_be_read_ahead(
    keys: tuple[tuple[str, ...], ...] | None,
) -> None:
    """A dump that always has a chunk under way would never let it in."""
    driver = started()
    driver.ask("week-long")
    first = driver.order()
    driver.mark(WatermarkKind.LOW, first.token)
    driver.answer(first, [(1, "a"), (2, "b")], complete=False)
    driver.ask("repair", keys=keys, priority=0 if keys else 1)
    assert driver.core.next_order(now=driver.now + 9) is None
    driver.mark(WatermarkKind.HIGH, first.token)
    repair = driver.order()
    assert repair.request_id == "repair"
