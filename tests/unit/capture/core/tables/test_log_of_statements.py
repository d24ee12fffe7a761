"""What only logs with statements tell: DDL, gaps, cascades, prepared transactions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fixtures.core import FACTS, SCHEMA, TABLE, WIDER, Driver, facts_with
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.position import MysqlPosition
from tideline_capture.core.chunks import ChunkFailed
from tideline_capture.core.events import (
    CascadeSeen,
    Control,
    GapSeen,
    PreparedSeen,
    SchemaSeen,
    StatementSeen,
    Truncated,
    Watermark,
    WatermarkKind,
)
from tideline_capture.core.worker import Worker

PLACE = MysqlPosition("binlog.000007", 400)


@pytest.fixture
def core() -> Worker:
    """A core with one live table."""
    return Driver.of(OpenState(tables={TABLE: TableState(schema=SCHEMA.fingerprint)}), FACTS).core


def report(core: Worker, *controls: Control) -> None:
    Driver(core).log(None, *controls)


def open_dumps(core: Worker) -> list[str]:
    return [item.request.request_id.partition(":")[0] for item in core.state.requests.open]


def test_a_neutral_statement_is_recorded_with_its_sequence(core: Worker) -> None:
    last = core.state.last_seq
    report(core, StatementSeen("ALTER TABLE t ADD n INT", (TABLE.upper(), "x.other"), True))
    (event,) = core.state.segment.schema_events
    assert (event.seq, event.table) == (last + 1, TABLE)
    assert (event.before, event.verdict) == (event.after, "neutral")
    assert event.statement == "ALTER TABLE t ADD n INT"
    assert open_dumps(core) == []
    assert core.state.tables[TABLE].condition is TableCondition.ACTIVE


def test_any_other_statement_has_its_tables_dumped(core: Worker) -> None:
    report(core, StatementSeen("RENAME TABLE …", (TABLE,), False))
    state = core.state.tables[TABLE]
    assert state.condition is TableCondition.NEEDS_RESNAPSHOT
    assert state.since_seq == core.state.segment.schema_events[0].seq
    assert open_dumps(core) == ["unproven"]


@pytest.mark.parametrize(
    "statement",
    [
        StatementSeen("ALTER TABLE t ADD big INT", (TABLE.upper(),), True),
        StatementSeen("ALTER DATABASE d …", (), False, schema=TABLE.partition(".")[0].upper()),
    ],
)
def test_a_table_that_changes_while_it_is_first_seen_waits_for_the_next_round(
    statement: StatementSeen,
) -> None:
    """The round may have read what was before, and rows of what came after are on their way."""
    driver = Driver()
    driver.begin_round("first")
    driver.log(None, statement, SchemaSeen(WIDER))
    driver.end_round("first", FACTS)
    assert TABLE not in driver.core.state.tables
    driver.begin_round("next")
    driver.end_round("next", facts_with(WIDER, columns=("id", "v", "big")))
    assert driver.core.state.schema(TABLE) == WIDER


def test_a_statement_about_a_database_concerns_all_of_its_tables(core: Worker) -> None:
    report(core, StatementSeen("DROP DATABASE x", (), False, schema="nothing"))
    assert not core.state.segment.schema_events
    report(
        core, StatementSeen("DROP DATABASE x", (), False, schema=TABLE.partition(".")[0].upper())
    )
    assert [event.table for event in core.state.segment.schema_events] == [TABLE]


def test_a_truncate_may_be_written_in_other_letters(core: Worker) -> None:
    report(core, Truncated((TABLE.upper(), "x.other")))
    assert [truncate.table for truncate in core.state.segment.truncates] == [TABLE]


def test_a_gap_concerns_all_tables_or_the_named_ones(core: Worker) -> None:
    report(core, GapSeen("something is missing", ("x.other",)))
    assert core.state.tables[TABLE].condition is TableCondition.ACTIVE
    report(core, GapSeen("something is missing"))
    state = core.state.tables[TABLE]
    assert (state.condition, state.reason) == (
        TableCondition.NEEDS_RESNAPSHOT,
        "something is missing",
    )
    assert open_dumps(core) == ["follow-up"]


def test_prepared_transactions_are_in_the_open_state_until_they_end(core: Worker) -> None:
    report(core, PreparedSeen("a", PLACE), PreparedSeen("b", PLACE))
    sealed = core.close_segment(now=100.0, force=True)
    assert sealed is not None and sealed.state_changed
    assert dict(sealed.state.prepared) == {"a": PLACE, "b": PLACE}
    report(core, PreparedSeen("a", None))
    assert dict(core.state.open_state().prepared) == {"b": PLACE}


def test_a_cascade_lets_a_running_dump_end_and_has_another_one_follow(core: Worker) -> None:
    report(core, CascadeSeen((TABLE,)))
    report(core, CascadeSeen((TABLE,)))
    assert open_dumps(core) == ["follow-up"]
    (item,) = core.state.requests.open
    begun = replace(item.dumps[0], state="running", first_low_seq=core.state.last_seq)
    core.state.requests.update(item.request.request_id, begun)
    report(core, CascadeSeen((TABLE,)))
    assert open_dumps(core) == ["follow-up", "follow-up"]
    assert core.state.requests.open[0].dumps[0].first_low_seq is not None
    assert core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT


def test_a_table_that_is_recreated_while_its_dump_failed_is_dumped_again(core: Worker) -> None:
    """DROP and CREATE: between the two the dump finds no table, and nothing else asks for one."""
    report(core, StatementSeen("DROP TABLE t", (TABLE,), False))
    assert open_dumps(core) == ["unproven"]
    report(core, StatementSeen("ALTER TABLE t COMMENT ''", (TABLE,), True))
    assert open_dumps(core) == ["unproven"]
    core.state.fail_table(TABLE, "the table is gone")
    assert open_dumps(core) == []
    report(core, StatementSeen("CREATE TABLE t (a INT)", (TABLE,), True))
    assert open_dumps(core) == ["unproven"]
    assert core.state.tables[TABLE].condition is TableCondition.NEEDS_RESNAPSHOT


def test_a_chunk_that_failed_before_a_statement_came_is_read_again(core: Worker) -> None:
    report(core, StatementSeen("DROP TABLE t", (TABLE,), False))
    order = core.next_order(now=1.0)
    assert order is not None
    report(core, Watermark(WatermarkKind.LOW, order.token, 0))
    report(core, StatementSeen("CREATE TABLE t (a INT)", (TABLE,), True))
    core.on_chunk(ChunkFailed(order.token, "the table is gone", None, False), now=2.0)
    assert open_dumps(core) == ["unproven"]
    later = core.next_order(now=100.0)
    assert later is not None
    report(core, Watermark(WatermarkKind.LOW, later.token, 0))
    core.on_chunk(ChunkFailed(later.token, "the table is gone", None, False), now=101.0)
    assert open_dumps(core) == []
