"""The core as a whole: sequences, windows, dumps, catalog and requests."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.core import (
    FACTS,
    POLICY,
    SCHEMA,
    TABLE,
    WIDER,
    Driver,
    emitted,
    facts_with,
    limits_with,
    make_core,
    make_rows,
    started,
)
from tideline.contract.open_state import TableCondition
from tideline.contract.request import KeyRange, RequestState
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.chunks import ChunkFailed
from tideline_capture.core.events import LogBatch, SchemaSeen, Truncated, WatermarkKind
from tideline_capture.core.facts import Snapshot

RETYPED = TableSchema(TABLE, (SCHEMA.columns[0], Column("v", "int32", "integer")), ("id",))
LATE = (1 << 20) + 5
"""A transaction that the driver's first snapshots do not show."""
MISSED = Snapshot(LATE, LATE + 1, (LATE,))
SEEN = Snapshot(LATE + 1, LATE + 1, ())


def condition(driver: Driver) -> TableCondition:
    return driver.core.state.tables[TABLE].condition


def test_a_new_table_is_announced_dumped_and_live() -> None:
    driver = Driver()
    driver.catalog(FACTS)
    driver.dump([(1, "a"), (2, "b")])
    sealed = driver.close_segment()
    assert [event.seq for event in sealed.schema_events] == [1]
    assert emitted(sealed) == [(2, "r", 1, "a"), (3, "r", 2, "b")]
    assert [delete_before.seq for delete_before in sealed.deletes_before] == [1]
    assert sealed.finished[0].state is RequestState.DONE
    assert (sealed.first_seq, sealed.last_seq) == (1, 3)


def test_log_only_does_not_dump_what_it_sees_for_the_first_time() -> None:
    core = make_core(policy=dataclasses.replace(POLICY, initial=False))
    driver = Driver(core)
    driver.catalog(FACTS)
    assert core.next_order(now=1000.0) is None
    assert condition(driver) is TableCondition.ACTIVE


def test_sequences_are_contiguous_over_rows_truncates_and_schema_events() -> None:
    driver = started()
    first = driver.core.state.next_seq
    driver.change(("c", 1, "a"), ("u", 1, "b"))
    driver.log(None, Truncated((TABLE,)))
    driver.log(None, SchemaSeen(WIDER))
    sealed = driver.close_segment()
    seqs = [row[0] for row in emitted(sealed)]
    seqs += [item.seq for item in sealed.truncates]
    seqs += [item.seq for item in sealed.schema_events]
    assert sorted(seqs) == list(range(first, sealed.last_seq + 1))


class TestWindow:
    def test_events_between_the_marks_win(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("u", 1, "new"))
        driver.answer(order, [(1, "old"), (2, "kept")])
        driver.mark(WatermarkKind.HIGH, order.token)
        rows = emitted(driver.close_segment())
        assert [row[1:] for row in rows] == [("u", 1, "new"), ("r", 2, "kept")]

    def test_events_before_the_low_mark_do_not(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.change(("u", 1, "seen"))
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "seen")])
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row[1:] for row in emitted(driver.close_segment())] == [
            ("u", 1, "seen"),
            ("r", 1, "seen"),
        ]

    def test_the_old_key_of_an_update_is_dropped_too(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("u", 9, "moved"), before=[1])
        driver.answer(order, [(1, "stale"), (2, "kept"), (9, "stale")])
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row[1:3] for row in emitted(driver.close_segment())] == [("u", 9), ("r", 2)]

    def test_an_unsupplied_column_is_carried_by_a_partial_row(self) -> None:
        driver = Driver()
        facts = facts_with(WIDER)
        driver.catalog(facts)
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("u", 1, "new"), schema=WIDER, unchanged=[["big"]])
        driver.change(("u", 2, "new"), schema=WIDER, unchanged=[["big"]])
        driver.change(("d", 2, None), schema=WIDER)
        driver.answer(order, [(1, "old"), (2, "gone"), (3, "kept")], facts=facts)
        driver.mark(WatermarkKind.HIGH, order.token)
        sealed = driver.close_segment()
        partial = [
            rows for rows in sealed.rows if rows.counts.unchanged_rows and "r" in _ops(rows.batch)
        ]
        assert len(partial) == 1
        row = partial[0].batch.to_pylist()[0]
        assert (row["id"], row["v"], row["big"]) == (1, None, "big 1")
        assert row["_tl_unchanged"] == ["v"]
        assert [r[1:3] for r in emitted(sealed) if r[1] == "r"] == [("r", 3), ("r", 1)]

    def test_a_column_that_a_later_event_supplied_is_not_carried(self) -> None:
        driver = Driver()
        facts = facts_with(WIDER)
        driver.catalog(facts)
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("u", 1, "new"), schema=WIDER, unchanged=[["big"]])
        driver.change(("u", 1, "newer"), schema=WIDER, unchanged=[None])
        driver.answer(order, [(1, "old")], facts=facts)
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row[1] for row in emitted(driver.close_segment())] == ["u", "u"]

    @pytest.mark.parametrize("control", [Truncated((TABLE,)), SchemaSeen(WIDER)])
    def test_a_truncate_or_schema_change_inside_has_the_chunk_read_again(
        self, control: Truncated | SchemaSeen
    ) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.log(None, control)
        driver.answer(order, [(1, "stale")])
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row for row in emitted(driver.close_segment()) if row[1] == "r"] == []
        again = driver.order()
        assert (again.token != order.token, again.after_key) == (True, None)

    def test_only_our_own_marks_count(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        driver.answer(order, [(1, "a")])
        driver.mark(WatermarkKind.HIGH, "someone else's")
        assert [row for row in emitted(driver.close_segment()) if row[1] == "r"] == []


class TestVisibility:
    def test_a_chunk_that_missed_an_earlier_commit_is_read_again(self) -> None:
        driver = started()
        driver.log(make_rows([("u", 1, "new")], driver.core.state.next_seq), xid=LATE)
        driver.ask()
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "old")], snapshot=MISSED)
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row[1] for row in emitted(driver.close_segment())] == ["u"]
        driver.dump([(1, "new")], snapshot=SEEN)
        assert [row[1:] for row in emitted(driver.close_segment())] == [("r", 1, "new")]

    def test_the_fence_is_used_first_and_after_too_many_redoes(self) -> None:
        driver = Driver()
        driver.catalog(FACTS)
        assert driver.dump([(1, "a")], complete=False).fence
        driver.log(make_rows([("u", 1, "new")], driver.core.state.next_seq), xid=LATE)
        fences = [driver.dump([(2, "b")], snapshot=MISSED, complete=False).fence for _ in range(4)]
        assert fences == [False, False, False, True]

    def test_a_snapshot_taken_during_a_chunk_does_not_excuse_it(self) -> None:
        driver = started()
        driver.log(make_rows([("u", 1, "new")], driver.core.state.next_seq), xid=LATE)
        driver.ask()
        order = driver.order()
        driver.core.on_snapshot(SEEN)
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [(1, "old")], snapshot=MISSED)
        driver.mark(WatermarkKind.HIGH, order.token)
        assert [row[1] for row in emitted(driver.close_segment())] == ["u"]


class TestDumps:
    def test_the_first_low_mark_sets_the_floor_for_good(self) -> None:
        driver = started()
        driver.ask()
        driver.change(("c", 1, "before"))
        low = driver.core.state.last_seq
        driver.dump([(1, "a")], complete=False)
        driver.change(("c", 5, "between"))
        driver.dump([(5, "b")])
        assert [delete_before.seq for delete_before in driver.close_segment().deletes_before] == [
            low
        ]

    def test_chunks_go_on_behind_the_last_key(self) -> None:
        driver = started()
        driver.ask()
        driver.dump([(1, "a"), (4, "b")], complete=False)
        assert driver.order().after_key == ("4",)

    def test_a_core_rebuilt_goes_on_from_the_last_chunk(self) -> None:
        driver = started()
        driver.ask()
        driver.dump([(4, "b")], complete=False)
        state = driver.close_segment().state
        core = make_core(state)
        core.state.learn(SCHEMA)
        order = core.next_order(now=1000.0)
        assert order is not None
        assert (order.request_id, order.after_key, order.fence) == ("r1", ("4",), True)

    def test_another_key_definition_begins_the_dump_again(self) -> None:
        driver = started()
        driver.ask()
        driver.dump([(4, "b")], complete=False)
        driver.dump([(5, "c")], facts=facts_with(key_definition="2:k"), complete=False)
        order = driver.order()
        assert order.after_key is None
        dump = driver.core.state.requests.open[0].dumps[0]
        assert dump.first_low_seq is None

    def test_keys_that_are_gone_become_deletes_unless_an_event_spoke(self) -> None:
        driver = started()
        driver.ask(keys=(("1",), ("2",), ("3",)))
        order = driver.order()
        assert order.keys == (("1",), ("2",), ("3",))
        driver.mark(WatermarkKind.LOW, order.token)
        driver.change(("c", 3, "just inserted"))
        driver.answer(order, [(1, "a")], missing=[2, 3])
        driver.mark(WatermarkKind.HIGH, order.token)
        sealed = driver.close_segment()
        assert [row[1:] for row in emitted(sealed)] == [
            ("c", 3, "just inserted"),
            ("r", 1, "a"),
            ("d", 2, None),
        ]
        assert sealed.deletes_before == ()

    def test_a_repair_of_keys_overtakes_a_long_dump(self) -> None:
        driver = started()
        driver.ask("long")
        driver.dump([(1, "a")], complete=False)
        driver.ask("short", keys=(("7",),))
        assert driver.order().request_id == "short"

    def test_a_chunk_that_cannot_be_read_ends_the_request_with_the_reason(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        failed = ChunkFailed(order.token, "the table is gone", None, retry=False)
        driver.core.on_chunk(failed, now=driver.now)
        answer = driver.close_segment().finished[0]
        assert answer.state is RequestState.FAILED
        assert answer.error is not None and "the table is gone" in answer.error

    def test_a_locked_table_is_tried_again_later(self) -> None:
        driver = started()
        driver.ask()
        order = driver.order()
        locked = ChunkFailed(order.token, "locked", None, retry=True)
        driver.core.on_chunk(locked, now=driver.now)
        assert driver.core.next_order(now=driver.now) is None
        assert driver.order().request_id == "r1"


class TestConditions:
    def test_a_table_without_a_key_is_quarantined_and_taken_up_when_it_gets_one(self) -> None:
        driver = Driver()
        driver.catalog(facts_with(None, problem="it has no key", hint="add one"))
        assert condition(driver) is TableCondition.QUARANTINED
        assert not driver.core.state.captures(TABLE)
        driver.catalog(FACTS)
        assert driver.core.state.captures(TABLE)
        driver.dump([(1, "a")])
        assert condition(driver) is TableCondition.ACTIVE

    def test_a_key_value_that_does_not_fit_parks_until_a_dump_is_asked_for(self) -> None:
        driver = started()
        batch = LogBatch((), 0, (), None, False, np.array([], np.int64), ((TABLE, "id"),))
        driver.core.on_batch(batch, now=driver.now)
        assert condition(driver) is TableCondition.QUARANTINED
        driver.catalog(FACTS)
        assert condition(driver) is TableCondition.QUARANTINED
        driver.ask()
        driver.dump([(1, "a")])
        assert condition(driver) is TableCondition.ACTIVE

    def test_a_nullable_column_is_adopted_without_a_dump(self) -> None:
        driver = started()
        driver.catalog(facts_with(WIDER, columns=("id", "v", "big")))
        sealed = driver.close_segment()
        assert [event.verdict for event in sealed.schema_events] == ["neutral"]
        assert condition(driver) is TableCondition.ACTIVE
        assert driver.core.next_order(now=driver.now + 100) is None

    def test_a_column_with_a_default_leaves_the_table_in_doubt_until_dumped(self) -> None:
        driver = started()
        facts = facts_with(WIDER, columns=("id", "v", "big"), backfilled=("big",))
        driver.log(None, SchemaSeen(WIDER))
        driver.catalog(facts)
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        driver.dump([(1, "a")], facts=facts)
        assert condition(driver) is TableCondition.ACTIVE

    def test_an_incompatible_change_blocks_until_a_full_dump_starts_a_generation(self) -> None:
        driver = started()
        driver.log(None, SchemaSeen(RETYPED))
        assert condition(driver) is TableCondition.SCHEMA_BLOCKED
        assert driver.core.next_order(now=driver.now + 100) is None
        driver.ask()
        low = driver.core.state.last_seq
        order = driver.order()
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [], facts=facts_with(RETYPED))
        driver.mark(WatermarkKind.HIGH, order.token)
        state = driver.core.state.tables[TABLE]
        assert state.condition is TableCondition.ACTIVE
        assert (state.generation, state.generation_seq) == (1, low)

    @pytest.mark.parametrize(
        "facts",
        [
            facts_with(storage="11"),
            facts_with(oid=2),
            facts_with(members="other+"),
            facts_with(columns=("id", "w")),
        ],
        ids=["rewritten", "re-created", "partitions", "column replaced"],
    )
    def test_what_the_log_does_not_tell_leaves_a_table_in_doubt(self, facts: object) -> None:
        driver = started()
        driver.catalog(facts)  # type: ignore[arg-type]
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        assert driver.order().table == TABLE

    def test_a_truncate_explains_new_storage(self) -> None:
        driver = started()
        driver.log(None, Truncated((TABLE,)))
        driver.catalog(facts_with(storage="11"))
        assert condition(driver) is TableCondition.ACTIVE

    def test_a_round_that_the_log_disturbed_is_not_judged(self) -> None:
        driver = started()
        driver.begin_round("r")
        driver.log(None, SchemaSeen(WIDER))
        driver.end_round("r", FACTS)
        schema = driver.core.state.schema(TABLE)
        assert schema == WIDER

    def test_a_lost_table_is_quarantined_and_its_dumps_fail(self) -> None:
        driver = started()
        driver.ask()
        driver.catalog()
        driver.catalog()
        assert condition(driver) is TableCondition.QUARANTINED
        assert driver.close_segment().finished[0].state is RequestState.FAILED


class TestRequests:
    def test_asking_again_joins_and_an_ended_one_is_answered(self) -> None:
        driver = started()
        driver.ask()
        driver.ask()
        assert len(driver.core.state.requests) == 1
        driver.dump([])
        driver.close_segment()
        driver.ask()
        assert len(driver.core.state.requests) == 0

    @pytest.mark.parametrize(
        ("fields", "word"),
        [
            ({"tables": ("public.nothing",)}, "no captured table matches"),
            ({"keys": (("1", "2"),)}, "must give its key columns: id"),
            ({"key_range": KeyRange(("10",), ("9",))}, "from is not before to"),
            ({"request_id": "anew:5"}, "begin with 'anew:'"),
            ({"request_id": "follow-up:5"}, "begin with 'follow-up:'"),
        ],
    )
    def test_what_cannot_be_served_is_refused_and_recorded(
        self, fields: dict[str, Any], word: str
    ) -> None:
        driver = started()
        driver.ask(**fields)
        driver.catalog(FACTS)
        driver.catalog(FACTS)
        sealed = driver.close_segment()
        assert sealed.refused[0].error is not None and word in sealed.refused[0].error
        assert sealed.messages == (f"m-{fields.get('request_id', 'r1')}",)

    def test_a_refused_message_that_comes_again_is_not_refused_twice(self) -> None:
        """The queue gives out what is not acknowledged, and a refusal may wait for the store."""
        driver = started()
        for number in range(5):
            driver.ask(f"r{number}")
        driver.ask("r4")
        assert [answer.request_id for answer in driver.close_segment().refused] == ["r4"]
        driver.dump([])
        driver.ask("r4")
        assert driver.close_segment().refused == ()
        assert "r4" not in driver.core.state.requests, "whoever asked was told that it is refused"

    def test_open_requests_are_limited(self) -> None:
        driver = started()
        for number in range(5):
            driver.ask(f"r{number}")
        assert len(driver.core.state.requests) == 4
        assert len(driver.close_segment().refused) == 1


class TestSegments:
    def test_nothing_closes_inside_a_transaction(self) -> None:
        driver = started()
        driver.log(make_rows([("c", 1, "a")], driver.core.state.next_seq), open=True)
        driver.now += 100
        assert driver.core.close_segment(now=driver.now) is None
        driver.log()
        assert driver.core.close_segment(now=driver.now) is not None

    def test_a_huge_transaction_is_spilled_and_committed_once(self) -> None:
        core = make_core(limits=limits_with(segment_bytes_max=100))
        driver = Driver(core)
        driver.catalog(FACTS)
        driver.close_segment()
        driver.log(
            make_rows([("c", n, "x" * 50) for n in range(9)], core.state.next_seq), open=True
        )
        partly_flushed = core.flush_partial(now=driver.now)
        assert partly_flushed is not None and partly_flushed.rows[0].batch.num_rows == 9
        driver.log(make_rows([("c", 10, "y")], core.state.next_seq))
        sealed = driver.close_segment()
        assert len(sealed.rows) == 1 and sealed.last_seq - sealed.first_seq + 1 == 10

    def test_an_idle_log_is_carried_on_once_per_heartbeat(self) -> None:
        driver = started()
        driver.mark(WatermarkKind.HEARTBEAT, "x")
        assert driver.core.close_segment(now=driver.now + 4.9) is None
        sealed = driver.core.close_segment(now=driver.now + 5.1)
        assert sealed is not None and sealed.first_seq == sealed.last_seq + 1


def _ops(batch: pa.RecordBatch) -> list[str]:
    operations: list[str] = batch.column("_tl_op").to_pylist()
    return operations


class TestReread:
    """A row that moves during a dump, and whose event does not carry all its values."""

    def test_it_is_read_again_by_its_new_key(self) -> None:
        driver = dumping_wider()
        driver.change(("u", 3, "moved"), schema=WIDER, before=[20], unchanged=[["big"]])
        driver.change(("u", 4, "moved"), schema=WIDER, before=[21], unchanged=[["big"]])
        driver.change(("u", 5, "moved"), schema=WIDER, before=[22], unchanged=[None])
        driver.change(("u", 6, "stays"), schema=WIDER, before=[None], unchanged=[["big"]])
        sealed = driver.close_segment()
        rereads = [r.request for r in sealed.state.requests if r.request.keys is not None]
        assert [request.keys for request in rereads] == [(("3",), ("4",))]
        assert rereads[0].request_id in sealed.accepted
        assert sealed.state_changed
        driver.change(("u", 7, "moved"), schema=WIDER, before=[23], unchanged=[["big"]])
        sealed = driver.close_segment()
        rereads = [r.request for r in sealed.state.requests if r.request.keys is not None]
        assert [request.keys for request in rereads] == [(("3",), ("4",), ("7",))]
        assert sealed.state_changed

    def test_it_takes_turns_with_the_dump(self) -> None:
        """A table whose rows move all the time is dumped to its end all the same."""
        driver = dumping_wider()
        served = []
        for number in range(1, 5):
            driver.change(("u", -number, "moved"), schema=WIDER, before=[90], unchanged=[["big"]])
            item, _ = next(driver.core.state.requests.due())
            driver.core.state.take_turn(item)
            served.append(item.request.keys is None)
        assert served == [False, True, False, True]

    def test_without_a_dump_the_old_row_has_the_values(self) -> None:
        driver = started()
        driver.change(("u", 3, "moved"), before=[20], unchanged=[["v"]])
        assert driver.close_segment().state.requests == ()

    def test_too_many_have_the_table_dumped_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tideline_capture.core.requests.intake.REREAD_KEYS_MAX", 1)
        driver = dumping_wider()
        driver.change(("u", 3, "moved"), schema=WIDER, before=[20], unchanged=[["big"]])
        driver.change(("u", 4, "moved"), schema=WIDER, before=[21], unchanged=[["big"]])
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        whole = [r for r in driver.close_segment().state.requests if r.request.keys is None]
        assert [dump.first_low_seq for dump in whole[0].dumps] == [None]


def dumping_wider() -> Driver:
    """A driver whose table is being dumped: its first low watermark is in the log."""
    driver = Driver()
    driver.catalog(facts_with(WIDER))
    driver.mark(WatermarkKind.LOW, driver.order().token)
    return driver
