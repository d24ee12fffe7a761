"""Columns that the source drops and adds again: the warehouse keeps the old one."""

from __future__ import annotations

import pytest

from tests.fixtures.core import SCHEMA, TABLE, Driver, facts_with, make_core, started
from tideline.contract.open_state import TableCondition
from tideline.contract.schema import Column, TableSchema
from tideline.contract.steps import ColumnStep, StepKind
from tideline_capture.core.events import SchemaSeen
from tideline_capture.core.tables.states import TableStates

KEY = SCHEMA.columns[0]
WITHOUT = TableSchema(TABLE, (KEY,), ("id",))


def with_column(name: str, kind: str) -> TableSchema:
    return TableSchema(TABLE, (KEY, Column(name, kind, kind)), ("id",))


def dropped() -> Driver:
    """The table has lost its column, and was dumped since."""
    driver = started()
    driver.log(None, SchemaSeen(WITHOUT))
    driver.dump([], facts=facts_with(WITHOUT))
    assert driver.core.state.tables[TABLE].condition is TableCondition.ACTIVE
    assert driver.close_segment().state.tables[TABLE].dropped == {"v": "string"}
    return driver


def test_one_that_comes_back_as_it_was_is_taken() -> None:
    driver = dropped()
    driver.log(None, SchemaSeen(with_column("v", "string")))
    state = driver.core.state.tables[TABLE]
    assert (state.condition, state.dropped) == (TableCondition.ACTIVE, {})


@pytest.mark.parametrize(("name", "kind"), [("v", "int32"), ("V", "string")])
def test_one_that_comes_back_as_another_needs_no_other_target(name: str, kind: str) -> None:
    """That the old one was dropped has been told: its target can make room."""
    driver = dropped()
    driver.log(None, SchemaSeen(with_column(name, kind)))
    state = driver.core.state.tables[TABLE]
    assert (state.condition, state.dropped) == (TableCondition.ACTIVE, {})
    event = driver.close_segment().schema_events[-1]
    assert event.steps == (ColumnStep(StepKind.ADD, name, type=kind),)


def test_a_column_that_changes_its_case_is_dropped_and_added() -> None:
    driver = started()
    driver.log(None, SchemaSeen(with_column("V", "string")))
    assert driver.core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT
    kinds = [step.kind for step in driver.close_segment().schema_events[-1].steps]
    assert kinds == [StepKind.DROP, StepKind.ADD]


def test_what_was_dropped_outlives_the_worker_and_ends_with_the_generation() -> None:
    driver = dropped()
    core = make_core(driver.core.state.open_state())
    assert core.state.tables[TABLE].dropped == {"v": "string"}
    core = driver.core
    TableStates(core.state).block(TABLE, since=9, reason="another key")
    TableStates(core.state).resnapshotted(TABLE, first_low_seq=9, first_manifest=1, last_seq=12)
    state = core.state.tables[TABLE]
    assert (state.generation, state.dropped, state.complete_seq) == (1, {}, 12)
