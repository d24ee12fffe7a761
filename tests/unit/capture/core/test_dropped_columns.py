"""Columns that the source drops and adds again: the warehouse keeps the old one."""

from __future__ import annotations

import pytest

from capture.core.events import SchemaSeen
from tests.fixtures.core import SCHEMA, TABLE, Driver, facts_with, make_core, started
from tideline.contract.manifest import TableCondition
from tideline.contract.schema import Column, TableSchema

KEY = SCHEMA.columns[0]
WITHOUT = TableSchema(TABLE, (KEY,), ("id",))


def with_column(name: str, kind: str) -> TableSchema:
    return TableSchema(TABLE, (KEY, Column(name, kind, kind)), ("id",))


def dropped() -> Driver:
    """The table has lost its column, and was dumped since."""
    driver = started()
    driver.log(None, SchemaSeen(WITHOUT))
    driver.dump([], facts=facts_with(WITHOUT))
    assert driver.core.tables.states[TABLE].condition is TableCondition.LIVE
    assert driver.seal().state.tables[TABLE].dropped == {"v": "string"}
    return driver


def test_one_that_comes_back_as_it_was_is_taken() -> None:
    driver = dropped()
    driver.log(None, SchemaSeen(with_column("v", "string")))
    state = driver.core.tables.states[TABLE]
    assert (state.condition, state.dropped) == (TableCondition.LIVE, {})


@pytest.mark.parametrize(("name", "kind"), [("v", "int32"), ("V", "string")])
def test_one_that_the_target_cannot_take_starts_it_anew(name: str, kind: str) -> None:
    driver = dropped()
    back = with_column(name, kind)
    driver.log(None, SchemaSeen(back))
    state = driver.core.tables.states[TABLE]
    assert state.condition is TableCondition.BLOCKED
    assert f"{name} takes the name of a dropped column" in str(state.reason)


def test_a_column_that_changes_its_case_starts_the_target_anew() -> None:
    driver = started()
    driver.log(None, SchemaSeen(with_column("V", "string")))
    assert driver.core.tables.states[TABLE].condition is TableCondition.BLOCKED


def test_what_was_dropped_outlives_the_worker_and_ends_with_the_generation() -> None:
    driver = dropped()
    core = make_core(driver.core.open_state())
    assert core.tables.states[TABLE].dropped == {"v": "string"}
    driver.log(None, SchemaSeen(with_column("v", "int32")))
    core = driver.core
    core.tables.proven(TABLE, first_low_seq=9, first_manifest=1, last_seq=12)
    state = core.tables.states[TABLE]
    assert (state.generation, state.dropped, state.complete_seq) == (1, {}, 12)
