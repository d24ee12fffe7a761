"""Which dumps start the target of a blocked table again, and what becomes of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fixtures.core import FACTS, POLICY, SCHEMA, TABLE, Driver, facts_with, make_core, started
from tideline.contract.open_state import ColumnNumbers, TableCondition
from tideline.contract.request import Action, Command, RequestState
from tideline.contract.schema import Column, TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.events import (
    WHOLE_ROW,
    CascadeSeen,
    CommandArrived,
    SchemaSeen,
    StatementSeen,
    WatermarkKind,
)

RETYPED = TableSchema(
    TABLE, (Column("id", "int64", "bigint", False), Column("v", "int32", "integer")), ("id",)
)
NEW = facts_with(RETYPED)
DDL = StatementSeen("ALTER TABLE t MODIFY v INT", (TABLE,), False)


def blocked(driver: Driver | None = None) -> Driver:
    driver = driver or started()
    driver.log(None, SchemaSeen(RETYPED))
    assert state_of(driver)[0] is TableCondition.SCHEMA_BLOCKED
    return driver


def state_of(driver: Driver) -> tuple[TableCondition, int]:
    state = driver.core.state.tables[TABLE]
    return state.condition, state.generation


def open_ids(driver: Driver) -> list[str]:
    return [item.request.request_id.partition(":")[0] for item in driver.core.state.requests.open]


def test_the_event_says_what_no_target_can_take() -> None:
    driver = blocked()
    (event,) = driver.close_segment().schema_events
    assert event.steps == (ColumnStep(StepKind.RETYPE, "v", type="int32"),)
    assert driver.core.state.tables[TABLE].blocked_by == (StepKind.RETYPE,)
    assert open_ids(driver) == []


def test_a_dump_that_somebody_asks_for_starts_it_again() -> None:
    driver = blocked()
    driver.ask("again")
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)
    assert driver.core.state.tables[TABLE].blocked_by == ()


def test_a_dump_that_was_asked_for_before_ends_and_starts_nothing() -> None:
    driver = started()
    driver.ask("before")
    driver.dump([(1, "a")], complete=False)
    blocked(driver)
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)
    (answer,) = driver.close_segment().finished
    assert (answer.request_id, answer.state) == ("before", RequestState.DONE)


def test_one_that_had_not_begun_starts_nothing_either() -> None:
    driver = started()
    driver.ask("before")
    blocked(driver)
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)


def test_a_dump_of_the_workers_own_that_was_to_prove_it_ends() -> None:
    """MySQL logs the statement first: the table is in doubt before it is blocked."""
    driver = started()
    driver.log(None, DDL)
    assert open_ids(driver) == ["unproven"]
    blocked(driver)
    assert open_ids(driver) == []
    assert driver.close_segment().finished[-1].state is RequestState.FAILED
    driver.log(None, DDL, CascadeSeen((TABLE,)))
    assert open_ids(driver) == []
    assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)


def test_while_it_has_never_been_dumped_nothing_is_lost() -> None:
    driver = Driver()
    driver.catalog(FACTS)
    assert open_ids(driver) == ["initial"]
    blocked(driver)
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)


def test_doubts_during_the_dump_outlive_it() -> None:
    driver = blocked()
    driver.ask("again")
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    driver.log(None, CascadeSeen((TABLE,)))
    driver.answer(order, [], facts=NEW)
    driver.mark(WatermarkKind.HIGH, order.token)
    assert state_of(driver) == (TableCondition.NEEDS_RESNAPSHOT, 1)
    assert open_ids(driver) == ["follow-up"]
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)


def applying(*kinds: StepKind) -> Driver:
    policy = replace(POLICY, applies=lambda table, kind: table == TABLE and kind in kinds)
    driver = Driver(make_core(policy=policy))
    driver.catalog(FACTS)
    driver.dump([])
    driver.close_segment()
    return driver


def test_where_the_settings_say_so_the_worker_asks_for_the_dump() -> None:
    driver = blocked(applying(StepKind.RETYPE))
    assert open_ids(driver) == ["anew"]
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)


def test_what_they_say_of_another_kind_is_not_meant() -> None:
    driver = blocked(applying(StepKind.KEY))
    assert open_ids(driver) == []


def test_a_dump_that_was_asked_for_between_two_changes_starts_nothing() -> None:
    """Who asked for it knew of the first change only; one that is asked for now does."""
    driver = blocked()
    driver.ask("between")
    driver.dump([(1, None)], facts=NEW, complete=False)
    keyed = TableSchema(TABLE, RETYPED.columns, ("id", "v"))
    driver.log(None, SchemaSeen(keyed))
    again = facts_with(keyed, key_definition="1:k2")
    driver.dump([], facts=again)
    driver.dump([], facts=again)
    assert "between" not in driver.core.state.requests
    assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)
    since = driver.core.state.tables[TABLE].since_seq
    driver.ask("behind")
    driver.dump([], facts=again)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)
    assert since is not None
    assert driver.core.state.tables[TABLE].generation_seq > since


def test_the_workers_own_follows_the_last_of_two_changes() -> None:
    driver = blocked(applying(StepKind.RETYPE, StepKind.KEY))
    driver.dump([(1, None)], facts=NEW, complete=False)
    keyed = TableSchema(TABLE, RETYPED.columns, ("id", "v"))
    driver.log(None, SchemaSeen(keyed))
    assert open_ids(driver) == ["anew"]
    driver.dump([], facts=facts_with(keyed))
    assert state_of(driver) == (TableCondition.ACTIVE, 1)
    assert open_ids(driver) == []


def test_who_cancels_the_workers_own_wants_the_table_left_as_it_is() -> None:
    driver = blocked(applying(StepKind.RETYPE))
    driver.catalog(NEW)
    command = Command("c", Action.CANCEL)
    driver.core.on_arrival(CommandArrived("m", command))
    driver.catalog(NEW)
    driver.catalog(NEW)
    assert open_ids(driver) == []
    later = Driver(make_core(driver.close_segment().state, policy=driver.core.state.policy))
    later.core.state.learn(RETYPED)
    later.core.state.mint(driver.core.state.last_seq)
    later.catalog(NEW)
    later.catalog(NEW)
    assert open_ids(later) == []
    later.log(None, SchemaSeen(SCHEMA))
    assert open_ids(later) == ["anew"], "another change is another matter"
    driver.ask("by hand")
    driver.dump([], facts=NEW)
    assert state_of(driver) == (TableCondition.ACTIVE, 1)


def test_another_change_that_they_say_to_park_at_ends_that_dump() -> None:
    """Else the dump that follows the one change would start the target again for the other."""
    driver = blocked(applying(StepKind.RETYPE))
    driver.dump([(1, None)], facts=NEW, complete=False)
    driver.log(None, SchemaSeen(TableSchema(TABLE, RETYPED.columns, ("id", "v"))))
    assert driver.core.state.tables[TABLE].blocked_by == (StepKind.RETYPE, StepKind.KEY)
    assert open_ids(driver) == []
    assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)


def test_settings_may_be_changed_while_it_waits() -> None:
    driver = blocked()
    state = driver.close_segment().state
    policy = replace(POLICY, applies=lambda table, kind: True)
    later = Driver(make_core(state, policy=policy))
    later.core.state.learn(RETYPED)
    later.core.state.mint(driver.core.state.last_seq)
    later.catalog(NEW)
    later.catalog(NEW)
    assert open_ids(later) == ["anew"]


class TestGone:
    def test_it_begins_again(self) -> None:
        driver = started()
        driver.catalog()
        assert not driver.core.state.tables[TABLE].removed  # It may only be in an ALTER.
        driver.catalog()
        assert driver.core.state.tables[TABLE].removed
        driver.catalog(FACTS)
        assert state_of(driver) == (TableCondition.SCHEMA_BLOCKED, 0)
        event = driver.close_segment().schema_events[-1]
        assert (event.verdict, event.before) == ("incompatible", event.after)
        assert open_ids(driver) == ["anew"]
        assert driver.order().fence
        driver.core.dumps.scheduler.in_flight.clear()
        driver.dump([(7, "another")])
        assert state_of(driver) == (TableCondition.ACTIVE, 1)

    def test_it_is_another_one_even_if_it_came_back_unfit(self) -> None:
        """With a reason of its own to be quarantined, it is no less another table."""
        driver = started()
        driver.catalog()
        driver.catalog()
        driver.catalog(facts_with(None, problem="it has no key"))
        assert driver.core.state.tables[TABLE].reason == "it has no key"
        later = Driver.of(driver.close_segment().state, FACTS)
        later.core.state.mint(driver.core.state.last_seq)
        later.catalog(FACTS)
        assert state_of(later) == (TableCondition.SCHEMA_BLOCKED, 0)
        assert open_ids(later) == ["anew"]
        assert not later.core.state.tables[TABLE].was_removed

    def test_even_when_it_was_blocked(self) -> None:
        driver = blocked()
        driver.catalog()
        driver.catalog()
        driver.catalog(NEW)
        assert open_ids(driver) == ["anew"]

    def test_columns_that_were_known_are_not_those_of_the_new_one(self) -> None:
        driver = started()
        driver.catalog(facts_with(numbers=ColumnNumbers(1, (1, 2), 2)))
        driver.catalog()
        driver.catalog()
        state = driver.core.state.tables[TABLE]
        assert (state.numbers, state.observed_steps) == (None, None)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("SET whole = ON", "have whole rows logged, by SET whole = ON, and dump the table then"),
        ("", "have whole rows logged and dump the table then"),
    ],
)
def test_the_hint_for_missing_rows_has_the_sources_own_statement(statement: str, hint: str) -> None:
    driver = Driver(make_core(policy=replace(POLICY, whole_rows=statement)))
    driver.catalog(FACTS)
    conditions = driver.core.conditions
    for _ in conditions.quarantine_value(TABLE, WHOLE_ROW, driver.core.state.next_seq):
        pass
    assert driver.core.state.tables[TABLE].hint == hint
