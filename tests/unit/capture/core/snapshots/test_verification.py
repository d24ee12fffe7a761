"""Verifications: read as dumps are, and nothing that the chain says of a table changes by them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.core import (
    BEFORE_LATE,
    LATE,
    SCHEMA,
    TABLE,
    WIDER,
    Driver,
    emitted,
    facts_with,
    make_core,
    started,
)
from tideline.contract.manifest import VerificationChunk
from tideline.contract.open_state import TableCondition
from tideline.contract.request import Action, Command, DumpRequest, RequestState
from tideline_capture.core.events import CommandArrived, SchemaSeen, Truncated, WatermarkKind
from tideline_capture.core.facts import Snapshot
from tideline_capture.core.segment import Segment
from tideline_capture.core.snapshots.verification import SCHEMA_TRIES_MAX, sampled
from tideline_capture.core.tables.states import TableStates


def verifying(**fields: Any) -> Driver:
    """A started driver whose table is being verified."""
    driver = started()
    driver.ask("v1", purpose="verify", **fields)
    return driver


def chunks_of(sealed: Segment) -> list[VerificationChunk]:
    return [one.chunk for one in sealed.verification_rows]


def test_rows_go_to_verification_parts_and_take_no_sequences() -> None:
    driver = verifying()
    driver.change(("c", 1, "a"))
    before = driver.core.state.last_seq
    states = dict(driver.core.state.tables)
    driver.dump([(1, "a"), (2, "b")], complete=False)
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    driver.change(("u", 3, "new"))
    driver.answer(order, [(3, "old"), (4, "d")])
    driver.mark(WatermarkKind.HIGH, order.token)
    sealed = driver.close_segment()
    assert driver.core.state.last_seq == before + 1
    assert [row[1] for row in emitted(sealed)] == ["c", "u"]
    assert chunks_of(sealed) == [
        VerificationChunk(
            "v1", TABLE, SCHEMA.fingerprint, 0, before, before, rows=2, last_key=("2",)
        ),
        VerificationChunk(
            "v1",
            TABLE,
            SCHEMA.fingerprint,
            1,
            before,
            before + 1,
            rows=2,
            after_key=("2",),
            last_key=("4",),
            complete=True,
        ),
    ]
    # The row that changed in the window is kept as it was read: who compares sets its key aside.
    assert sealed.verification_rows[1].rows.column("v").to_pylist() == ["old", "d"]
    assert sealed.deletes_before == ()
    assert [answer.state for answer in sealed.finished] == [RequestState.DONE]
    assert dict(driver.core.state.tables) == states


def test_given_keys_and_those_that_are_gone() -> None:
    driver = verifying(keys=(("1",), ("2",), ("3",)))
    driver.dump([(1, "a"), (3, "c")], missing=[2])
    [read] = driver.close_segment().verification_rows
    assert (read.chunk.rows, read.chunk.phase, read.chunk.complete) == (3, "keys", True)
    assert read.missing is not None
    assert read.missing.column("id").to_pylist() == [2]
    assert read.chunk.last_key is None


def test_a_commit_that_the_read_did_not_see_has_it_read_again() -> None:
    driver = verifying()
    driver.log(None, xid=LATE)
    order = driver.dump([(1, "a")], snapshot=BEFORE_LATE)
    assert driver.core.dumps.redone == 1
    driver.dump([(1, "b")], snapshot=Snapshot(LATE + 1, LATE + 1, ()))
    [read] = driver.close_segment().verification_rows
    assert read.rows.column("v").to_pylist() == ["b"]
    assert order.verify


@pytest.mark.parametrize("control", [Truncated((TABLE,)), SchemaSeen(WIDER)])
def test_a_change_of_the_table_in_the_window_has_it_read_again(control: Any) -> None:
    driver = verifying()
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    driver.log(None, control)
    driver.answer(order, [(1, "a")])
    driver.mark(WatermarkKind.HIGH, order.token)
    assert chunks_of(driver.close_segment()) == []
    facts = facts_with(WIDER if isinstance(control, SchemaSeen) else SCHEMA)
    driver.dump([(1, "a")], facts=facts)
    assert len(driver.close_segment().verification_rows) == 1


def test_columns_that_the_log_has_not_told_of_are_waited_for_and_not_minted() -> None:
    driver = verifying()
    wider = facts_with(WIDER)
    last = driver.core.state.last_seq
    driver.dump([(1, "a")], facts=wider)
    assert driver.core.state.last_seq == last
    assert driver.core.state.schema(TABLE) == SCHEMA
    driver.log(None, SchemaSeen(WIDER))
    driver.dump([(1, "a")], facts=wider)
    [read] = driver.close_segment().verification_rows
    assert read.schema == WIDER


def test_columns_that_the_log_never_tells_of_end_it() -> None:
    driver = verifying()
    for _ in range(SCHEMA_TRIES_MAX + 1):
        driver.dump([(1, "a")], facts=facts_with(WIDER))
    [answer] = driver.close_segment().finished
    assert answer.state is RequestState.FAILED
    assert answer.error is not None
    assert "columns" in answer.error


@pytest.mark.parametrize(
    "fields", [{"facts": facts_with(None, problem="no key")}, {"key_overflow": ("id",)}]
)
def test_what_parks_a_table_in_a_dump_only_ends_the_verification(fields: Any) -> None:
    driver = verifying()
    driver.dump([(1, "a")], **fields)
    [answer] = driver.close_segment().finished
    assert answer.state is RequestState.FAILED
    assert driver.core.state.tables[TABLE].condition is TableCondition.ACTIVE


def test_another_key_begins_it_again() -> None:
    driver = verifying()
    driver.dump([(1, "a")], complete=False)
    driver.dump([(2, "b")], facts=facts_with(key_definition="1:other"))
    driver.dump([(1, "a")], facts=facts_with(key_definition="1:other"))
    assert [(one.chunk, one.after_key) for one in chunks_of(driver.close_segment())] == [
        (0, None),
        (0, None),
    ]


def test_a_table_in_doubt_stays_so() -> None:
    driver = started()
    TableStates(driver.core.state).mark_doubted(TABLE, since=1, reason="doubt")
    driver.ask("v1", purpose="verify")
    driver.dump([(1, "a")])
    driver.close_segment()
    assert driver.core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT
    assert len(driver.core.state.requests) == 0


def test_a_cancelled_verification_asks_for_no_dump() -> None:
    driver = started()
    TableStates(driver.core.state).mark_doubted(TABLE, since=1, reason="doubt")
    driver.ask("v1", purpose="verify")
    command = Command("c1", Action.CANCEL, requests=("v1",))
    driver.core.on_arrival(CommandArrived("m", command))
    assert len(driver.core.state.requests) == 0


def test_a_blocked_or_quarantined_table_is_refused_by_name() -> None:
    driver = started()
    TableStates(driver.core.state).block(TABLE, since=1, reason="another type")
    driver.ask("v1", purpose="verify")
    [answer] = driver.close_segment().refused
    assert answer.error == f"table {TABLE} is blocked: another type"
    TableStates(driver.core.state).quarantine(
        TABLE, seq=2, reason="no identity", hint=None, cause="value"
    )
    driver.ask("v2", purpose="verify")
    [answer] = driver.close_segment().refused
    assert answer.error == f"table {TABLE} is quarantined: no identity"
    assert driver.core.state.quarantined(TABLE) == "value"


@pytest.mark.parametrize(
    ("wanted", "error", "hint"),
    [
        (
            {"purpose": "verify"},
            "has no key to verify it by",
            f"`tideline dump {TABLE}` makes it equal to its source (docs/KEYLESS.md)",
        ),
        (
            {"keys": (("1",),)},
            "has no key: only a dump of the whole table can be made",
            f"`tideline dump {TABLE}`, without keys or a range",
        ),
    ],
)
def test_of_a_table_without_a_key_the_dump_that_can_be_made_is_named(
    wanted: dict[str, Any], error: str, hint: str
) -> None:
    driver = Driver(make_core())
    driver.catalog(facts_with(replace(SCHEMA, key=())))
    driver.ask("v1", **wanted)
    [answer] = driver.close_segment().refused
    assert answer.error == f"table {TABLE} {error}"
    assert answer.hint == hint


def test_a_successor_goes_on_behind_the_last_chunk() -> None:
    driver = verifying()
    driver.dump([(1, "a"), (2, "b")], complete=False)
    state = driver.close_segment().state
    successor = Driver(make_core(state))
    successor.core.state.learn(SCHEMA)
    order = successor.order()
    assert (order.after_key, order.verify) == (("2",), True)
    successor.mark(WatermarkKind.LOW, order.token)
    successor.answer(order, [(3, "c")])
    successor.mark(WatermarkKind.HIGH, order.token)
    assert [one.chunk for one in chunks_of(successor.close_segment())] == [1]


class TestSample:
    def test_it_depends_on_the_request_and_the_chunks_beginning_alone(self) -> None:
        request = DumpRequest("v1", (TABLE,), purpose="verify", sample_percent=20)
        keys = [(str(number),) for number in range(2_000)]
        chosen = [key for key in keys if sampled(request, TABLE, key)]
        assert 300 < len(chosen) < 500
        assert chosen == [key for key in keys if sampled(request, TABLE, key)]
        other = DumpRequest("v2", (TABLE,), purpose="verify", sample_percent=20)
        assert chosen != [key for key in keys if sampled(other, TABLE, key)]

    def test_of_the_other_chunks_only_the_end_is_read(self) -> None:
        driver = verifying(sample_percent=1)
        order = driver.order()
        assert order.boundary_only
        driver.mark(WatermarkKind.LOW, order.token)
        driver.answer(order, [], last_key=("10",), complete=False)
        driver.mark(WatermarkKind.HIGH, order.token)
        driver.dump([])
        first, last = chunks_of(driver.close_segment())
        assert (first.skipped, first.rows, first.last_key) == (True, 0, ("10",))
        assert (last.after_key, last.complete) == (("10",), True)
