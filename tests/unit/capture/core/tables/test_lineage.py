"""When it is certain which column is which, and what a change of columns then is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.fixtures.core import FACTS, SCHEMA, TABLE, Driver, facts_with, started
from tideline.contract.open_state import ColumnNumbers, TableCondition, TableState
from tideline.contract.schema import Column, TableSchema, Verdict
from tideline.contract.steps import ColumnStep, Origin, StepKind
from tideline_capture.core.events import SchemaSeen, StatementSeen, WatermarkKind
from tideline_capture.core.tables.lineage import (
    Lineage,
    by_name,
    by_numbers,
    by_statement,
    follows,
    judge,
)

KEY = SCHEMA.columns[0]


def schema(*columns: str, key: str = "id") -> TableSchema:
    """A table of texts, but for its key."""
    named = (replace_column(KEY, key), *(Column(name, "string", "text") for name in columns))
    return TableSchema(TABLE, named, (key,))


def replace_column(column: Column, name: str) -> Column:
    return Column(name, column.type, column.source_type, column.nullable)


def numbers(*columns: int, last: int = 0, oid: int = 1) -> ColumnNumbers:
    return ColumnNumbers(oid, columns, last or max(columns))


class TestNumbers:
    @pytest.mark.parametrize(
        ("now", "certain"),
        [
            (numbers(1, 2, 3), True),
            (numbers(1, 2, last=3), True),  # Dropped.
            (numbers(1, 2, 3, 4), True),  # Added.
            (numbers(1, 2, 3, 4, 5), True),
            (numbers(1, 2, 3, 5), False),  # One came and went: it may have had the same name.
            (numbers(1, 2, 3, last=4), True),
            (numbers(1, 2, 4), False),  # Dropped and added: it may be one that was renamed.
            (numbers(1, 2, 3, oid=2), False),
            (numbers(0, 1, 2, 3), False),  # It was generated until now.
        ],
    )
    def test_what_may_have_come_in_between(self, now: ColumnNumbers, certain: bool) -> None:
        assert follows(numbers(1, 2, 3), now) is certain

    @staticmethod
    def lineage(new: TableSchema, now: ColumnNumbers, **facts: Any) -> tuple[TableSchema, Lineage]:
        old = schema("a", "b")
        found = replace(facts_with(new, numbers=now), **facts)
        state = TableState(numbers=numbers(1, 2, 3), catalog=FACTS.catalog)
        lineage = by_numbers(old, new, state, found)
        assert lineage is not None
        return old, lineage

    def test_columns_that_exchange_their_names(self) -> None:
        new = schema("b", "a")
        old, lineage = self.lineage(new, numbers(1, 2, 3))
        judged = judge(old, new, lineage)
        assert judged.verdict is Verdict.NEUTRAL
        assert [(step.was, step.column) for step in judged.steps] == [
            ("a", "_tl_between_2"),
            ("b", "a"),
            ("_tl_between_2", "b"),
        ]

    def test_the_key_keeps_its_meaning_under_another_name(self) -> None:
        new = schema("a", "b", key="pk")
        old, lineage = self.lineage(new, numbers(1, 2, 3))
        judged = judge(old, new, lineage)
        assert judged.verdict is Verdict.NEUTRAL
        assert judged.steps == (ColumnStep(StepKind.RENAME, "pk", was="id"),)
        unsure = judge(old, new, by_name(old, new))
        assert unsure.verdict is Verdict.INCOMPATIBLE
        assert unsure.steps[-1] == ColumnStep(StepKind.KEY)

    @pytest.mark.parametrize(
        ("facts", "verdict", "default"),
        [
            ({}, Verdict.NEUTRAL, None),
            ({"backfilled": ("c",), "defaults": {"c": "7"}}, Verdict.NEUTRAL, "7"),
            ({"backfilled": ("c",)}, Verdict.DOUBTFUL, None),
            ({"backfilled": ("a",)}, Verdict.NEUTRAL, None),
            ({"storage": "11"}, Verdict.DOUBTFUL, None),
            ({"members": "other+"}, Verdict.DOUBTFUL, None),
            ({"members": "m+label"}, Verdict.NEUTRAL, None),
        ],
        ids=["null", "default", "unknown", "older", "rewritten", "partitions", "labels"],
    )
    def test_what_rows_hold_in_a_new_column(
        self, facts: dict[str, Any], verdict: Verdict, default: str | None
    ) -> None:
        new = schema("a", "b", "c")
        old, lineage = self.lineage(new, numbers(1, 2, 3, 4), **facts)
        judged = judge(old, new, lineage)
        step = ColumnStep(StepKind.ADD, "c", type="string", default=default)
        assert (judged.verdict, judged.steps) == (verdict, (step,))

    def test_the_catalog_must_mean_the_same_columns(self) -> None:
        old, new = schema("a", "b"), schema("a")
        state = TableState(numbers=numbers(1, 2, 3), catalog=FACTS.catalog)
        later = facts_with(schema("b"), numbers=numbers(1, 3, last=3))
        assert by_numbers(old, new, state, later) is None


class TestStatements:
    def test_only_a_schema_with_just_these_columns_shows_what_they_did(self) -> None:
        old = schema("a", "b")
        observed_steps = (ColumnStep(StepKind.RENAME, "c", was="a"),)
        assert by_statement(old, schema("b"), observed_steps) is None
        assert by_statement(old, schema("c", "b"), None) is None
        found = by_statement(old, schema("c", "b"), observed_steps)
        assert found is not None
        assert dict(found.origins) == {"id": Origin("id"), "c": Origin("a"), "b": Origin("b")}

    def test_a_text_that_became_bytes_is_not_known(self) -> None:
        """A table may have `binary` as its charset: its new VARCHAR is a VARBINARY."""
        old, observed_steps = schema("a"), (ColumnStep(StepKind.ADD, "w", default="abcd"),)
        new = TableSchema(TABLE, (*old.columns, Column("w", "binary", "varbinary(9)")), ("id",))
        lineage = by_statement(old, new, observed_steps)
        assert lineage is not None
        judged = judge(old, new, lineage)
        assert (judged.verdict, judged.steps[0].default) == (Verdict.DOUBTFUL, None)

    @pytest.mark.parametrize(
        ("before", "after", "verdict"),
        [
            (("int32", "int"), ("int64", "bigint"), Verdict.NEUTRAL),
            (("int64", "int unsigned"), ("int64", "bigint"), Verdict.NEUTRAL),
            (("string", "varchar(5)"), ("string", "varchar(9)"), Verdict.NEUTRAL),
            (("string", "varchar(9)"), ("string", "varchar(5)"), Verdict.DOUBTFUL),
            (("string", "varchar(5)"), ("string", "char(9)"), Verdict.DOUBTFUL),
            (("float32", "float"), ("float64", "double"), Verdict.DOUBTFUL),
            (("int32", "int"), ("string", "text"), Verdict.INCOMPATIBLE),
        ],
    )
    def test_types_that_hold_the_same_values(
        self, before: tuple[str, str], after: tuple[str, str], verdict: Verdict
    ) -> None:
        old = TableSchema(TABLE, (KEY, Column("v", *before)), ("id",))
        new = TableSchema(TABLE, (KEY, Column("v", *after)), ("id",))
        lineage = by_statement(old, new, ())
        assert lineage is not None
        assert judge(old, new, lineage).verdict is verdict
        if verdict is Verdict.NEUTRAL:  # By the names alone nothing is known of values.
            assert judge(old, new, by_name(old, new)).verdict is Verdict.DOUBTFUL


RENAME = StatementSeen(
    "ALTER …", (TABLE,), True, steps=(ColumnStep(StepKind.RENAME, "w", was="V"),)
)
RENAMED = schema("w")
REPLACE = StatementSeen(
    "ALTER …",
    (TABLE,),
    True,
    steps=(ColumnStep(StepKind.DROP, "v"), ColumnStep(StepKind.ADD, "v", default="x")),
)
UNKNOWN = StatementSeen("ALTER …", (TABLE,), True)


def condition(driver: Driver) -> TableCondition:
    return driver.core.state.tables[TABLE].condition


class TestStatementsInTheLog:
    def test_what_they_did_is_told_with_the_schema_that_shows_it(self) -> None:
        driver = started()
        driver.log(None, RENAME)
        driver = Driver.of(driver.close_segment().state, FACTS)  # Another worker goes on.
        driver.log(None, SchemaSeen(RENAMED))
        assert condition(driver) is TableCondition.ACTIVE
        (event,) = driver.close_segment().schema_events
        assert event.steps == (ColumnStep(StepKind.RENAME, "w", was="v"),)
        assert event.before != event.after

    def test_a_column_of_the_same_name_and_type_is_another_one(self) -> None:
        driver = started()
        driver.log(None, REPLACE, SchemaSeen(SCHEMA))
        event = driver.close_segment().schema_events[-1]
        assert event.before == event.after
        assert [step.kind for step in event.steps] == [StepKind.DROP, StepKind.ADD]
        assert event.steps[-1].default == "x"
        driver.log(None, SchemaSeen(SCHEMA))
        assert driver.core.state.segment.schema_events == []

    def test_a_look_at_the_catalog_shows_it_as_well(self) -> None:
        driver = started()
        driver.log(None, REPLACE)
        driver.catalog(FACTS)
        assert condition(driver) is TableCondition.ACTIVE
        assert driver.close_segment().schema_events[-1].steps

    @pytest.mark.parametrize("known", [RENAME, REPLACE])
    def test_what_is_no_longer_certain_is_in_doubt(self, known: StatementSeen) -> None:
        driver = started()
        driver.log(None, known, UNKNOWN)
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT

    def test_a_schema_that_does_not_fit_is_in_doubt(self) -> None:
        driver = started()
        driver.log(None, RENAME, SchemaSeen(SCHEMA))
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT


class TestRelations:
    """What the log says, with what the catalog says of it at that moment or later."""

    def begun(self) -> Driver:
        driver = started()
        driver.catalog(facts_with(numbers=numbers(1, 2)))
        driver.close_segment()
        return driver

    def test_a_rename_is_told_and_found_no_second_time(self) -> None:
        driver = self.begun()
        facts = facts_with(RENAMED, columns=("id", "w"), numbers=numbers(1, 2))
        driver.log(None, SchemaSeen(RENAMED, 7, 1, facts))
        driver.catalog(facts)
        driver.catalog(facts)
        assert condition(driver) is TableCondition.ACTIVE
        (event,) = driver.close_segment().schema_events
        assert event.steps == (ColumnStep(StepKind.RENAME, "w", was="v"),)

    def test_the_catalog_alone_tells_it_too(self) -> None:
        driver = self.begun()
        driver.catalog(facts_with(RENAMED, columns=("id", "w"), numbers=numbers(1, 2)))
        driver.log(None, SchemaSeen(RENAMED, 7, 1))
        assert condition(driver) is TableCondition.ACTIVE
        (event,) = driver.close_segment().schema_events
        assert event.steps == (ColumnStep(StepKind.RENAME, "w", was="v"),)

    def test_without_the_catalogs_word_it_is_in_doubt(self) -> None:
        driver = self.begun()
        driver.log(None, SchemaSeen(RENAMED, 7, 1))
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        assert driver.core.state.tables[TABLE].numbers is None

    def test_a_column_that_was_replaced_is_in_doubt(self) -> None:
        driver = self.begun()
        facts = facts_with(columns=("id", "other v"), numbers=numbers(1, 3))
        driver.log(None, SchemaSeen(SCHEMA, 7, 1, facts))
        driver.catalog(facts)
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT

    @pytest.mark.parametrize("reported", [True, False], ids=["reported", "later"])
    def test_a_column_that_came_went_and_came_again_is_in_doubt(self, reported: bool) -> None:
        """Rows that were logged in between have values in a column that is no longer there."""
        driver = self.begun()
        again = schema("v", "c")
        facts = facts_with(again, columns=("id", "v", "c"), numbers=numbers(1, 2, 4))
        driver.log(None, SchemaSeen(again, 7, 1, facts if reported else None))
        driver.catalog(facts)
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT

    def test_one_that_came_before_the_catalog_was_asked_is_not(self) -> None:
        driver = self.begun()
        added = schema("v", "c")
        facts = facts_with(added, columns=("id", "v", "c"), numbers=numbers(1, 2, 3))
        driver.log(None, SchemaSeen(added, 7, 1))
        driver.catalog(facts)
        assert condition(driver) is TableCondition.ACTIVE

    def test_another_table_of_that_name_is_in_doubt_at_once(self) -> None:
        driver = self.begun()
        driver.log(None, SchemaSeen(SCHEMA, 7, oid=2))
        assert condition(driver) is TableCondition.NEEDS_RESNAPSHOT
        assert driver.order().fence

    def test_a_rename_during_a_dump_leads_to_no_other_one(self) -> None:
        driver = self.begun()
        driver.ask("whole")
        before = facts_with(numbers=numbers(1, 2))
        driver.dump([(1, "a")], facts=before, complete=False)
        facts = facts_with(RENAMED, columns=("id", "w"), numbers=numbers(1, 2))
        driver.log(None, SchemaSeen(RENAMED, 7, 1, facts))
        driver.dump([(2, "b")], facts=facts)
        driver.catalog(facts)
        assert condition(driver) is TableCondition.ACTIVE
        assert not driver.core.state.requests.open


def test_a_change_between_a_low_mark_and_its_chunk_is_read_again() -> None:
    """The window's rows were logged before the change, and the chunk has them as they are after."""
    driver = started()
    driver.ask("whole")
    order = driver.order()
    driver.mark(WatermarkKind.LOW, order.token)
    driver.change(("u", 1, "old"))
    changed = facts_with(columns=("id", "other v"))
    driver.answer(order, [(1, "default")], facts=changed)
    driver.mark(WatermarkKind.HIGH, order.token)
    assert driver.core.dumps.redone == 1
    driver.dump([(1, "default")], facts=changed)
    assert driver.core.dumps.redone == 1
    assert not driver.core.state.requests.open
