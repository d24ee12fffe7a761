"""Where the capture of a table begins: what the log says of that, what the catalog, and both."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.fixtures.core import CLOCK_US, FACTS, POLICY, SCHEMA, TABLE, Driver, facts_with
from tideline.contract.open_state import (
    REMOVED,
    CapturedFrom,
    OpenState,
    TableCondition,
    TableState,
)
from tideline.contract.request import DumpRequest
from tideline.contract.schema import TableSchema
from tideline_capture.core.events import (
    Begun,
    Control,
    GapSeen,
    RequestArrived,
    SchemaSeen,
    StatementSeen,
    Unreadable,
)
from tideline_capture.core.worker import Worker

AT_US = 1_700_000_000_000_000
ROW = ("c", 1, "new")
NO_KEY = TableSchema(TABLE, SCHEMA.columns, ())
RESERVED = msgspec.structs.replace(
    SCHEMA, columns=(*SCHEMA.columns, msgspec.structs.replace(SCHEMA.columns[1], name="_tl_x"))
)


def begins(empty: bool | None = True, table: str = TABLE) -> StatementSeen:
    return StatementSeen("…", (table,), True, begun=(Begun(table, empty, AT_US),))


def ends(table: str = TABLE) -> StatementSeen:
    return StatementSeen("…", (table,), False, ended=(table,))


def dumps(core: Worker) -> list[str]:
    return [item.request.request_id.partition(":")[0] for item in core.state.requests.open]


def test_a_table_that_was_made_is_captured_with_its_first_description() -> None:
    driver = Driver()
    driver.log(None, begins())
    core = driver.core
    assert not core.state.captures(TABLE)
    driver.log(None, SchemaSeen(SCHEMA), open=True)
    assert core.state.captures(TABLE)
    driver.change(ROW)
    state = core.state.tables[TABLE]
    assert state.captured_from == CapturedFrom(1, AT_US, created=True)
    assert (state.complete_seq, dumps(core), core.state.begun) == (1, [], {})
    driver.catalog(FACTS)
    assert (core.state.tables[TABLE].captured_from, dumps(core)) == (state.captured_from, [])


def test_one_that_has_no_rows_yet_is_taken_by_the_next_look() -> None:
    driver = Driver()
    driver.log(None, begins())
    driver.catalog(FACTS)
    state = driver.core.state.tables[TABLE]
    assert state.captured_from == CapturedFrom(1, AT_US, created=True)
    assert (state.complete_seq, dumps(driver.core)) == (1, [])


def test_a_successor_knows_what_has_begun() -> None:
    driver = Driver()
    driver.log(None, begins())
    sealed = driver.core.close_segment(now=driver.now, force=True)
    assert sealed is not None and sealed.state_changed
    after = Driver.of(sealed.state)
    after.log(None, SchemaSeen(SCHEMA))
    assert after.core.state.captures(TABLE)


@pytest.mark.parametrize("initial", [True, False])
@pytest.mark.parametrize("empty", [False, None])
def test_one_that_may_hold_rows_is_captured_and_dumped(empty: bool | None, initial: bool) -> None:
    """It was renamed; or made, unless it was there, and nobody has looked before."""
    driver = Driver()
    driver.core.state.policy = replace(POLICY, initial=initial)
    driver.log(None, begins(empty), SchemaSeen(SCHEMA))
    state = driver.core.state.tables[TABLE]
    assert state.captured_from == CapturedFrom(1, AT_US)
    assert (state.complete_seq, dumps(driver.core)) == (None, ["initial"] if initial else [])
    driver.catalog(FACTS)
    assert dumps(driver.core) == (["initial"] if initial else [])


def test_what_a_look_did_not_find_was_made_by_the_statement() -> None:
    driver = Driver()
    driver.catalog()
    driver.log(None, begins(None), SchemaSeen(SCHEMA))
    begun = driver.core.state.tables[TABLE].captured_from
    assert begun is not None and begun.created


@pytest.mark.parametrize(
    "between",
    [
        ends(),
        ends(TABLE.upper()),
        StatementSeen("DROP DATABASE …", (), False, schema="PUBLIC"),
        Unreadable(TABLE),
        GapSeen("an incident"),
        SchemaSeen(NO_KEY),
        SchemaSeen(RESERVED),
    ],
)
def test_what_ended_or_left_out_rows_has_not_begun(
    between: Control,
) -> None:
    """What comes later is not all: the next look takes it for a table that it has found."""
    driver = Driver()
    driver.log(None, begins(), between, SchemaSeen(SCHEMA))
    assert not driver.core.state.captures(TABLE)
    assert driver.core.state.begun == {}
    driver.catalog(FACTS)
    begun = driver.core.state.tables[TABLE].captured_from
    assert begun == CapturedFrom(2, CLOCK_US)
    assert dumps(driver.core) == ["initial"]


def test_without_a_key_where_the_settings_say_so() -> None:
    driver = Driver()
    driver.log(None, begins(), SchemaSeen(NO_KEY, keyless=True))
    assert driver.core.state.captures(TABLE)


def test_a_table_that_nothing_of_the_log_began_waits_for_a_look() -> None:
    driver = Driver()
    driver.log(None, SchemaSeen(SCHEMA))
    assert not driver.core.state.captures(TABLE)


def test_one_that_the_catalog_knows_just_so_is_captured_and_dumped() -> None:
    """PostgreSQL's log has no DDL, but who reads it asks the catalog."""
    driver = Driver()
    driver.log(None, SchemaSeen(SCHEMA, facts=FACTS, starts_capture=True), open=True)
    assert driver.core.state.captures(TABLE)
    assert dumps(driver.core) == ["initial"]
    begun = driver.core.state.tables[TABLE].captured_from
    assert begun is not None and not begun.created


def test_a_table_that_was_gone_begins_a_generation_with_its_first_row() -> None:
    quarantined = TableState(
        condition=TableCondition.QUARANTINED,
        schema=SCHEMA.fingerprint,
        reason=REMOVED,
        cause="catalog",
        was_removed=True,
    )
    driver = Driver.of(OpenState(tables={TABLE: quarantined}), FACTS)
    driver.log(None, SchemaSeen(SCHEMA))
    assert not driver.core.state.captures(TABLE)
    driver.log(None, begins(), SchemaSeen(SCHEMA))
    state = driver.core.state.tables[TABLE]
    assert driver.core.state.captures(TABLE)
    assert (state.condition, dumps(driver.core)) == (TableCondition.SCHEMA_BLOCKED, ["anew"])
    assert state.captured_from == CapturedFrom(1, AT_US, created=True)


def test_one_that_was_quarantined_for_its_catalog_is_recreated() -> None:
    driver = Driver()
    driver.catalog(facts_with(None, problem="it has no primary key"))
    assert driver.core.state.quarantined(TABLE) == "catalog"
    driver.log(None, SchemaSeen(SCHEMA))
    assert not driver.core.state.captures(TABLE)
    driver.log(None, ends(), begins(), SchemaSeen(SCHEMA))
    assert driver.core.state.captures(TABLE)


def test_one_that_is_taken_up_by_a_dump_begins_there() -> None:
    quarantined = TableState(
        condition=TableCondition.QUARANTINED, schema=SCHEMA.fingerprint, reason="…", cause="value"
    )
    driver = Driver.of(OpenState(tables={TABLE: quarantined}), FACTS)
    driver.log(None, begins(), SchemaSeen(SCHEMA))
    assert not driver.core.state.captures(TABLE)
    driver.core.on_arrival(RequestArrived("1", DumpRequest("r", (TABLE,))))
    assert driver.core.state.tables[TABLE].captured_from == CapturedFrom(1)


def test_what_two_looks_do_not_find_is_forgotten() -> None:
    driver = Driver()
    driver.log(None, begins())
    driver.catalog()
    assert driver.core.state.begun
    driver.catalog()
    assert driver.core.state.begun == {}
