"""Catalog rounds: which of them count, and what they find of the publication."""

from __future__ import annotations

import pytest

from tests.fixtures.core import EVERYTHING, FACTS, SCHEMA, TABLE, WIDER, Driver, facts_with, started
from tideline.contract.open_state import TableCondition
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.events import SchemaSeen, Truncated, WatermarkKind
from tideline_capture.core.facts import Snapshot

LATE = (1 << 20) + 5
BEFORE_LATE = Snapshot(LATE, LATE + 1, (LATE,))
RETYPED = TableSchema(TABLE, (WIDER.columns[0], Column("v", "int32", "integer")), ("id",))


def condition(driver: Driver) -> TableCondition:
    return driver.core.state.tables[TABLE].condition


class TestRounds:
    def test_one_that_comes_after_its_mark_takes_no_place(self) -> None:
        driver = started()
        for number in range(40):
            token = f"late-{number}"
            driver.begin_round(token)
            driver.mark(WatermarkKind.HEARTBEAT, token)
            driver.core.on_catalog(driver.round(token, FACTS))
        driver.catalog(facts_with(WIDER, columns=("id", "v", "big")))
        assert driver.core.state.schema(TABLE) == WIDER

    def test_ones_whose_marks_have_passed_take_no_place(self) -> None:
        driver = started()
        for number in range(40):
            driver.core.on_catalog(driver.round(f"unread-{number}", FACTS))
            driver.catalog(FACTS)
        driver.catalog(facts_with(WIDER, columns=("id", "v", "big")))
        assert driver.core.state.schema(TABLE) == WIDER

    def test_while_the_log_is_behind_the_first_ones_are_kept(self) -> None:
        driver = started()
        rounds = [f"r{number}" for number in range(40)]
        for token in rounds:
            driver.core.on_catalog(
                driver.round(token, facts_with(WIDER, columns=("id", "v", "big")))
            )
        for token in rounds[:1]:
            driver.begin_round(token)
            driver.mark(WatermarkKind.HEARTBEAT, token)
        assert driver.core.state.schema(TABLE) == WIDER

    def test_a_table_that_is_left_for_the_next_round_is_work_to_do(self) -> None:
        driver = started()
        assert driver.core.idle()
        driver.log(None, SchemaSeen(SCHEMA, xid=LATE))
        driver.begin_round("early")
        driver.end_round("early", FACTS, snapshot=BEFORE_LATE)
        assert not driver.core.idle()
        driver.begin_round("late")
        driver.end_round("late", FACTS, snapshot=Snapshot(LATE + 1, LATE + 1, ()))
        driver.core.close_segment(now=driver.now, force=True)
        assert driver.core.idle()

    def test_marks_of_another_worker_do_not_open_ours(self) -> None:
        driver = started()
        driver.begin_round("ours")
        driver.begin_round("foreign")
        driver.end_round("ours", facts_with(None, problem="p"))
        assert condition(driver) is TableCondition.ACTIVE


class TestFormAndVisibility:
    """The log can have an ALTER's own rows before the catalog shows that ALTER."""

    def test_a_round_that_did_not_see_the_change_yet_is_not_believed(self) -> None:
        driver = started()
        driver.log(None, SchemaSeen(RETYPED, xid=LATE))
        driver.ask()
        driver.dump([], facts=facts_with(RETYPED), snapshot=Snapshot(LATE + 1, LATE + 1, ()))
        driver.begin_round("r")
        driver.end_round("r", FACTS, snapshot=BEFORE_LATE)
        assert driver.core.state.schema(TABLE) == RETYPED
        assert condition(driver) is TableCondition.ACTIVE

    def test_nor_of_a_truncate(self) -> None:
        driver = started()
        driver.log(None, Truncated((TABLE,), xid=LATE))
        driver.begin_round("r")
        driver.end_round("r", FACTS, snapshot=BEFORE_LATE)
        driver.catalog(facts_with(storage="11"))
        assert condition(driver) is TableCondition.ACTIVE

    @pytest.mark.parametrize(
        ("changed_by", "columns_too", "found"),
        [
            (7, False, TableCondition.ACTIVE),
            (0, False, TableCondition.ACTIVE),
            (8, False, TableCondition.NEEDS_RESNAPSHOT),
            (7, True, TableCondition.NEEDS_RESNAPSHOT),
        ],
        ids=["the truncate", "not told", "another", "the same transaction"],
    )
    def test_rows_that_were_stored_again_behind_a_truncate_are_in_doubt(
        self, changed_by: int, columns_too: bool, found: TableCondition
    ) -> None:
        """TRUNCATE; INSERT; ALTER COLUMN … TYPE … USING: new storage either way."""
        driver = started()
        driver.log(None, Truncated((TABLE,), xid=7))
        driver.change(("c", 1, "as it was"))
        facts = facts_with(storage="12", changed_by=changed_by, columns_too=columns_too)
        driver.catalog(facts)
        assert condition(driver) is found

    def test_one_that_saw_it_is(self) -> None:
        driver = started()
        driver.log(None, SchemaSeen(WIDER, xid=7))
        driver.begin_round("r")
        driver.end_round("r", FACTS, snapshot=EVERYTHING)
        assert driver.core.state.schema(TABLE) == FACTS.schema


class TestPublication:
    def test_a_table_that_was_out_of_it_for_a_while_is_dumped_behind_a_fence(self) -> None:
        driver = started()
        driver.catalog(facts_with(membership="2"))
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        assert driver.order().fence

    def test_that_is_found_by_a_successor_too(self) -> None:
        before = started()
        before.catalog(FACTS)
        state = before.core.state.open_state()
        after = Driver.of(state, FACTS)
        after.catalog(facts_with(membership="2"))
        assert condition(after) is TableCondition.NEEDS_RESNAPSHOT

    def test_one_that_is_out_of_it_right_now_waits_for_the_next_round(self) -> None:
        driver = Driver()
        driver.catalog(facts_with(membership=""))
        assert driver.core.state.tables == {}
        driver.catalog(FACTS)
        assert driver.order().fence

    def test_a_lost_round_costs_no_fence(self) -> None:
        driver = Driver()
        driver.begin_round("lost")
        driver.mark(WatermarkKind.HEARTBEAT, "lost")
        driver.catalog(FACTS)
        driver.core.dumps.unseen.complete = True
        assert driver.order().fence


@pytest.mark.parametrize("reason", ["it has no key", "another"])
def test_a_quarantined_table_says_why(reason: str) -> None:
    driver = started()
    driver.catalog(facts_with(None, problem=reason, hint="h"))
    state = driver.core.state.tables[TABLE]
    assert (state.condition, state.reason, state.hint) == (TableCondition.QUARANTINED, reason, "h")
