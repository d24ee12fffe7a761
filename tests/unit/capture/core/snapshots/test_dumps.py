"""Dumps when something else happens meanwhile: what must never cost a row, or bring one back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from tests.fixtures.core import (
    BEFORE_LATE,
    FACTS,
    LATE,
    OTHER,
    OTHER_FACTS,
    SCHEMA,
    TABLE,
    Driver,
    emitted,
    facts_with,
    limits_with,
    make_core,
    make_rows,
    started,
)
from tideline.contract.errors import Unavailable
from tideline.contract.open_state import TableCondition
from tideline.contract.receipt import reread_request
from tideline.contract.request import DumpRequest, RequestState
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.chunks import ChunkFailed, ChunkOrder, ChunkRead, WatermarksWritten
from tideline_capture.core.events import LogBatch, RequestArrived, SchemaSeen, WatermarkKind
from tideline_capture.core.facts import Snapshot

KEYLESS = TableSchema(TABLE, SCHEMA.columns, ())


def whole_rows(driver: Driver) -> list[int]:
    return [row[2] for row in emitted(driver.close_segment()) if row[1] == "r"]


class TestBegunAnew:
    """A dump that starts again reads from the first key on, whatever was ordered before."""

    def test_between_order_and_low_mark(self) -> None:
        driver = started()
        driver.ask()
        driver.dump([(1, "a"), (2, "b")], complete=False)
        order = driver.order()
        assert order.after_key == ("2",)
        driver.catalog(facts_with(storage="11"))
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(3, "c")], facts=facts_with(storage="11"))
        driver.mark(WatermarkKind.HIGH, order.token)
        sealed = driver.close_segment()
        assert sealed.deletes_before == ()
        assert driver.order().after_key is None

    def test_between_low_and_high_mark(self) -> None:
        driver = started()
        driver.ask()
        driver.dump([(1, "a"), (2, "b")], complete=False)
        driver.close_segment()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.catalog(facts_with(storage="11"))
        driver.answer(order, [(3, "c")], facts=facts_with(storage="11"))
        driver.mark(WatermarkKind.HIGH, order.token)
        assert whole_rows(driver) == []
        assert driver.order().after_key is None

    def test_the_first_low_mark_after_it_counts(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.catalog(facts_with(storage="11"))
        driver.change(("c", 7, "x"))
        low = driver.core.state.last_seq
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(3, "c")], facts=facts_with(storage="11"))
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [delete_before.seq for delete_before in driver.close_segment().deletes_before] == [
            low
        ]


class TestParked:
    def test_a_quarantined_table_is_not_dumped(self) -> None:
        driver = started()
        driver.catalog()
        driver.catalog()
        driver.close_segment()
        driver.ask()
        sealed = driver.close_segment()
        assert [answer.state for answer in sealed.refused] == [RequestState.REFUSED]
        assert "quarantined" in str(sealed.refused[0].error)
        assert driver.core.next_order(now=1000.0) is None

    def test_a_pattern_leaves_quarantined_tables_out(self) -> None:
        driver = started()
        driver.catalog(FACTS, dataclasses.replace(OTHER_FACTS, schema=None, problem="no key"))
        driver.ask(tables=("public.*",))
        request = driver.core.state.requests.open[0]
        assert [dump.table for dump in request.dumps] == [TABLE]

    def test_a_repair_of_keys_does_not_take_a_table_up(self) -> None:
        driver = started()
        quarantined = LogBatch((), 0, (), None, False, np.array([], np.int64), ((TABLE, "id"),))
        driver.core.on_batch(quarantined, now=driver.now)
        driver.ask(keys=(("1",),))
        assert driver.close_segment().refused[0].error is not None
        assert driver.core.state.tables[TABLE].condition is TableCondition.QUARANTINED

    def test_a_table_that_loses_its_key_in_the_log_is_quarantined(self) -> None:
        driver = started()
        driver.ask()
        driver.log(None, SchemaSeen(KEYLESS))
        assert not driver.core.state.captures(TABLE)
        assert driver.close_segment().finished[0].state is RequestState.FAILED
        driver.catalog(FACTS)
        assert driver.core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT
        assert driver.core.state.schema(TABLE) == FACTS.schema

    def test_one_table_of_a_request_fails_durably(self) -> None:
        driver = started()
        driver.catalog(FACTS, OTHER_FACTS)
        driver.dump([], facts=OTHER_FACTS)
        driver.ask(tables=(TABLE, OTHER))
        driver.close_segment()
        driver.core.run(
            driver.core.conditions.quarantine(OTHER, reason="r", hint=None, cause="catalog")
        )
        sealed = driver.close_segment()
        assert sealed.state_changed
        states = {dump.table: dump.state for dump in sealed.state.requests[0].dumps}
        assert states == {TABLE: "accepted", OTHER: "failed"}

    def test_a_blocked_table_stays_blocked_while_it_is_quarantined_and_after(self) -> None:
        driver = started()
        retyped = TableSchema(TABLE, (SCHEMA.columns[0], Column("v", "int32", "integer")), ("id",))
        driver.log(None, SchemaSeen(retyped))
        since = driver.core.state.tables[TABLE].since_seq
        driver.catalog()
        driver.catalog()
        state = driver.core.state.tables[TABLE]
        assert (state.condition, state.since_seq) == (TableCondition.SCHEMA_BLOCKED, since)
        assert not driver.core.state.captures(TABLE)
        driver.catalog(facts_with(retyped))
        state = driver.core.state.tables[TABLE]
        assert (state.condition, state.since_seq) == (TableCondition.SCHEMA_BLOCKED, since)
        assert driver.core.state.captures(TABLE)


class TestFence:
    def test_one_serves_all_tables_that_joined_before_it(self) -> None:
        driver = Driver()
        driver.catalog(FACTS, OTHER_FACTS)
        fences = [driver.dump([], facts=facts).fence for facts in (FACTS, OTHER_FACTS)]
        assert fences == [True, False]

    def test_a_table_that_joins_after_the_order_has_its_chunk_read_again(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        assert not order.fence
        driver.core.dumps.scheduler.joined(TABLE)
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "a")])
        driver.mark(WatermarkKind.HIGH, order.token)
        assert whole_rows(driver) == []
        assert driver.order().fence

    def test_a_chunk_whose_low_mark_came_after_ids_were_dropped_is_read_again(self) -> None:
        core = make_core(limits=limits_with(unseen_transactions_max=2))
        driver = Driver(core)
        driver.catalog(FACTS)
        driver.dump([])
        driver.ask()
        order = driver.order()
        for xid in (LATE, LATE + 1, LATE + 2):
            driver.log(make_rows([("u", 1, "new")], core.state.next_seq), xid=xid)
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "old")], snapshot=BEFORE_LATE)
        driver.mark(WatermarkKind.HIGH, order.token)
        assert whole_rows(driver) == []

    def test_what_a_chunk_shows_is_forgotten_before_its_low_mark_comes(self) -> None:
        core = make_core(limits=limits_with(unseen_transactions_max=2))
        driver = Driver(core)
        driver.catalog(FACTS)
        driver.dump([])
        driver.ask()
        order = driver.order()
        driver.answer(order, [(1, "a")])
        for _ in range(9):
            driver.change(("u", 2, "x"))
        driver.mark(WatermarkKind.LOW, order.token)
        driver.mark(WatermarkKind.HIGH, order.token)
        assert whole_rows(driver) == [1]

    def test_a_snapshot_counts_as_soon_as_the_low_mark_was_read(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.log(make_rows([("u", 1, "new")], driver.core.state.next_seq), xid=LATE)
        driver.core.on_snapshot(Snapshot(LATE + 1, LATE + 1, ()))
        assert len(driver.core.dumps.unseen) == 0


class TestKeys:
    KEYS = (("1",), ("2",), ("3",))

    def test_a_chunk_may_cover_fewer_keys_than_asked_for(self) -> None:
        driver = started()
        driver.ask(keys=self.KEYS)
        driver.dump([(1, "a")], keys_read=1)
        assert driver.order().keys == (("2",), ("3",))

    def test_it_goes_on_where_it_was_after_a_restart(self) -> None:
        driver = started()
        driver.ask(keys=self.KEYS, chunk_rows=2)
        driver.dump([(1, "a")])
        core = make_core(driver.close_segment().state)
        order = core.next_order(now=1000.0)
        assert order is not None and order.keys == (("3",),)

    def test_it_ends_with_the_last_key(self) -> None:
        driver = started()
        driver.ask(keys=self.KEYS, chunk_rows=2)
        driver.dump([(1, "a"), (2, "b")])
        driver.dump([(3, "c")])
        answer = driver.close_segment().finished[0]
        assert (answer.state, answer.tables[0].rows) == (RequestState.DONE, 3)


def test_why_a_chunk_could_not_be_read_is_told_until_one_is() -> None:
    driver = started()
    driver.ask()
    order = driver.order()
    locked = ChunkFailed(order.token, "the table is locked", None, retry=True)
    driver.core.on_chunk(locked, now=driver.now)
    assert driver.core.answers(now=driver.now)[0].tables[0].waiting == "the table is locked"
    driver.dump([(1, "a")], complete=False)
    assert driver.core.answers(now=driver.now)[0].tables[0].waiting is None


@pytest.mark.parametrize("known", [False, True], ids=["not durable", "durable"])
def test_an_ended_request_is_told_as_such_once_that_is_durable(known: bool) -> None:
    driver = started()
    driver.ask()
    driver.dump([])
    answer = driver.close_segment().finished[0]
    if known:
        driver.core.state.recent.durable([replace(answer, manifest_number=17)])
    reported = driver.ask()
    assert (None if reported is None else reported.manifest_number) == (17 if known else None)
    assert (reported is not None) is known


def test_a_table_that_cannot_be_read_does_not_hold_up_the_others() -> None:
    driver = started()
    driver.catalog(FACTS, OTHER_FACTS)
    driver.dump([], facts=OTHER_FACTS)
    driver.ask(tables=(TABLE, OTHER))
    order = driver.order()
    assert order.table == TABLE
    locked = ChunkFailed(order.token, "the table is locked", None, retry=True)
    driver.core.on_chunk(locked, now=driver.now)
    other = driver.core.next_order(now=driver.now)
    assert other is not None and other.table == OTHER
    driver.mark(WatermarkKind.LOW, other.token)
    driver.answer(other, [], facts=OTHER_FACTS)
    driver.mark(WatermarkKind.HIGH, other.token)
    assert driver.order().table == TABLE


@pytest.mark.parametrize("pattern", ["t", "public.", "public.t.x", ""])
def test_a_request_that_cannot_be_understood_stops_nobody_else(pattern: str) -> None:
    """It would come again after every start."""
    driver = started()
    driver.ask(tables=(pattern,))
    refused = driver.close_segment().refused[0]
    assert refused.state is RequestState.REFUSED and "not a pattern" in str(refused.error)


@pytest.mark.parametrize(
    "request_id",
    [
        "reread:1",
        "initial:1:a",
        "anew:1:a",
        "follow-up:1:a",
        "unproven:1:a",
        "pending:mine",
        "pending:i:3:0123456789ab",
    ],
)
def test_ids_that_mean_something_to_us_are_not_to_be_had(request_id: str) -> None:
    driver = started()
    driver.ask(request_id, keys=(("1",),))
    begins = f"{request_id.partition(':')[0]}:"
    assert f"begin with {begins!r}" in str(driver.close_segment().refused[0].error)
    assert request_id not in driver.core.state.requests


def test_rows_that_a_merge_left_pending_may_be_asked_for() -> None:
    driver = started()
    request = reread_request(TABLE, (("1",),), incarnation="incarnation", applied=3)
    driver.core.on_arrival(RequestArrived("m", request))
    assert request.request_id in driver.core.state.requests


class TestUnknownTable:
    """It may be new: the request waits for a look at the catalog that began after it came."""

    def test_it_is_refused_after_two_rounds(self) -> None:
        driver = started()
        driver.ask(tables=("public.other",))
        driver.catalog(FACTS)
        assert driver.core.state.segment.refused == []
        driver.catalog(FACTS)
        assert "no captured table matches" in str(driver.close_segment().refused[0].error)

    def test_rounds_of_a_worker_before_us_do_not_count(self) -> None:
        """Their marks lie in the log that is read again, and what they found went with it."""
        driver = Driver()
        driver.ask()
        for token in ("theirs-1", "theirs-2", "theirs-3"):
            driver.begin_round(token)
            driver.mark(WatermarkKind.HEARTBEAT, token)
        driver.catalog(FACTS)
        assert "r1" in driver.close_segment().accepted

    def test_it_is_accepted_once_it_is_there(self) -> None:
        driver = Driver()
        driver.ask(tables=(TABLE,), keys=(("1",),))
        waits = [driver.core.intake.waits]
        driver.catalog(FACTS)
        waits.append(driver.core.intake.waits)
        assert waits == [True, False]
        assert "r1" in driver.close_segment().accepted

    def test_asking_again_meanwhile_changes_nothing(self) -> None:
        driver = Driver()
        driver.ask()
        again = RequestArrived("m-again", DumpRequest("r1", (TABLE,)))
        driver.core.on_arrival(again)
        driver.catalog(FACTS)
        sealed = driver.close_segment()
        assert sealed.accepted.count("r1") == 1
        assert sealed.messages == ("m-again", "m-r1")

    def test_its_entry_is_not_acknowledged_before_it_is_decided(self) -> None:
        """The queue hands an entry out again that was not acknowledged for a while."""
        driver = started()
        for _ in range(2):
            driver.ask(tables=("public.other",))
        assert driver.core.state.segment.messages == []


class TestMarksThatDoNotCome:
    """A heartbeat that was written behind a chunk's marks cannot come before them."""

    def ordered(self) -> tuple[Driver, ChunkOrder]:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "a")])
        return driver, order

    def test_they_are_missed(self) -> None:
        driver, order = self.ordered()
        driver.core.on_chunk(WatermarksWritten(order.token), now=driver.now)
        with pytest.raises(Unavailable, match=r"the watermarks of a chunk of public\.t"):
            driver.catalog(FACTS)

    def read_ahead(self) -> tuple[Driver, ChunkOrder, ChunkOrder]:
        """One chunk is still to be answered, and the next one was; neither has a high watermark."""
        driver = started()
        driver.ask()
        first = driver.order()
        driver.mark(WatermarkKind.LOW, first.token)
        driver.core.on_chunk(ChunkRead(first.token, ("5",), False), now=driver.now)
        ahead = driver.order()
        driver.mark(WatermarkKind.LOW, ahead.token)
        driver.answer(ahead, [(6, "b")])
        return driver, first, ahead

    def test_a_chunk_that_waits_for_its_turn_misses_none(self) -> None:
        """It was read ahead, its marks have come, and the chunk before it takes longer."""
        driver, first, ahead = self.read_ahead()
        driver.mark(WatermarkKind.HIGH, ahead.token)
        driver.core.on_chunk(WatermarksWritten(ahead.token), now=driver.now)
        driver.catalog(FACTS)
        driver.answer(first, [(5, "a")], complete=False)
        driver.mark(WatermarkKind.HIGH, first.token)
        assert whole_rows(driver) == [5, 6]

    def test_marks_that_come_between_two_heartbeats_are_not_missed(self) -> None:
        """They were written before the second one, and come before it."""
        driver, first, ahead = self.read_ahead()
        driver.core.on_chunk(WatermarksWritten(ahead.token), now=driver.now)
        driver.begin_round("r")
        driver.core.on_catalog(driver.round("r", FACTS))
        driver.mark(WatermarkKind.HIGH, ahead.token)
        driver.mark(WatermarkKind.HEARTBEAT, "r")
        driver.answer(first, [(5, "a")], complete=False)
        driver.mark(WatermarkKind.HIGH, first.token)
        assert whole_rows(driver) == [5, 6]

    def test_a_heartbeat_that_was_written_before_them_says_nothing(self) -> None:
        driver, order = self.ordered()
        driver.begin_round("early")
        driver.core.on_catalog(driver.round("early", FACTS))
        driver.core.on_chunk(WatermarksWritten(order.token), now=driver.now)
        driver.mark(WatermarkKind.HEARTBEAT, "early")
        driver.begin_round("late")
        driver.core.on_catalog(driver.round("late", FACTS))
        driver.mark(WatermarkKind.HIGH, order.token)
        driver.mark(WatermarkKind.HEARTBEAT, "late")
        assert whole_rows(driver) == [1]
