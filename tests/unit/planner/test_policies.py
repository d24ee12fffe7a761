"""Policies of schema changes: where plans stop, what they say, how they go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.blocks import roll_up
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planner import apply
from tideline.contract import layout
from tideline.contract.modes import Mode
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.timeliness import Stage
from tideline.planner import preview_plan
from tideline.planner.table_status import TableStage
from tideline.settings import make_settings
from tideline_console.status import read_status
from tideline_console.status import run as show_status

T = "public.t"
U = "public.u"
PLAIN = schema_of(T, {"id": "int32", "a": "string"}, ["id"])
RENAMED = schema_of(T, {"id": "int32", "b": "string"}, ["id"])
RENAME = ColumnStep(StepKind.RENAME, "b", was="a")


def row(key: int, table: str = T) -> Row:
    return Row(table, "c", {"id": key})


def react(history: History, **on_change: str) -> None:
    """Other settings from here on."""
    given: dict[str, Any] = {
        "pipeline": history.settings.pipeline,
        "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
        "store": {"url": history.settings.store.url},
        "warehouse": {"url": history.settings.warehouse.url},
        "tables": {T: {"on_change": on_change}},
    }
    history.settings = make_settings(given)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Table t is renamed a column of in manifest 4, and has rows before and after; u has rows."""
    made = History(tmp_path)
    made.commit(Shaped(PLAIN), Shaped(schema_of(U, {"id": "int32"}, ["id"])))
    made.commit(row(1), row(1, U))
    made.commit(row(2))
    made.commit(row(3), Shaped(RENAMED, (RENAME,)), row(4), row(2, U))
    made.commit(row(5))
    return made


def test_a_quarantined_table_stops_before_the_event_and_others_go_on(history: History) -> None:
    react(history, rename="park")
    plan = history.plan()
    assert {table.table: table.to_manifest for table in plan.tables} == {T: 3, U: 5}
    (table,) = (table for table in plan.tables if table.table == T)
    assert (table.changes, table.schema) == ((), PLAIN)
    seq = 7
    for words in ("'a'", "'b'", f"sequence {seq}", "on_change.rename", "apply or ignore",
                  f"tideline dump {T}", f"tideline rebuild {T}", "blocked"):  # fmt: skip
        assert words in plan.delayed[T]


def test_a_table_that_stands_there_is_held_and_does_not_hold_up_others(history: History) -> None:
    react(history, rename="park")
    apply(history, 3)
    apply(history, 5, U)
    for number in range(8):
        history.commit(row(10 + number), row(10 + number, U))
    plan = history.plan()
    assert {table.table: (table.from_manifest, table.to_manifest) for table in plan.tables} == {
        U: (5, 13)
    }
    assert "was renamed to 'b'" in plan.delayed[T]


def test_status_says_that_a_table_waits_for_a_decision(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    react(history, rename="park")
    apply(history, 3)
    apply(history, 5, U)
    history.commit(row(9, U))
    (waits, works) = read_status(history.settings).tables
    assert (waits.state, waits.since_seq, waits.up_to_date) == (TableStage.SCHEMA_BLOCKED, 7, False)
    assert waits.late is not None
    assert waits.late.stage is Stage.TABLE
    assert works.state is TableStage.ACTIVE
    show_status(history.settings, as_json=False)
    reported = capsys.readouterr().out
    assert "set on_change.rename to apply or ignore" in reported
    assert f"{T} is late by table: the table is schema-blocked: see above" in reported
    assert (reported.count("was renamed to 'b'"), "quarantined" in reported) == (1, False)
    react(history, rename="apply")
    assert read_status(history.settings).tables[0].state is TableStage.ACTIVE


@pytest.mark.parametrize(("reaction", "ignored"), [("apply", ()), ("ignore", (StepKind.RENAME,))])
def test_a_decision_lets_it_go_on(
    history: History, reaction: str, ignored: tuple[StepKind, ...]
) -> None:
    react(history, rename="park")
    apply(history, 3)
    assert T in history.plan().delayed
    react(history, rename=reaction)
    plan = history.plan(T)
    (table,) = plan.tables
    assert (table.from_manifest, table.to_manifest, table.ignored) == (3, 5, ignored)
    assert [(change.seq, change.steps) for change in table.changes] == [(7, (RENAME,))]
    assert table.changes[0].before == PLAIN.fingerprint
    assert set(table.schemas) == {PLAIN.fingerprint, RENAMED.fingerprint}
    assert plan.delayed == {}


def test_a_target_that_is_removed_begins_behind_the_event_with_a_later_dump(
    history: History,
) -> None:
    react(history, rename="park")
    low = history.last_seq
    history.commit(Row(T, "r", {"id": 1, "b": "x"}), deletes_before=[(T, low)])
    apply(history, 3)
    assert T in history.plan(T).delayed
    shutil.rmtree(history.target(T).removeprefix("file://"))
    plan = history.plan(T)
    assert plan.delayed == {}
    (table,) = plan.tables
    assert (table.start_seq, table.to_manifest, table.schema) == (low, 6, RENAMED)


def test_a_generation_is_not_quarantined_before_what_came_before_it(tmp_path: Path) -> None:
    made = History(tmp_path)
    made.commit(Shaped(PLAIN))
    made.commit(row(1))
    begun = {"generation": 1, "generation_seq": 4, "generation_manifest": 2}
    made.commit(Shaped(RENAMED, (RENAME,)), row(2), row(1), row(2), deletes_before=[(T, 4)],
                states={T: begun})  # fmt: skip
    react(made, rename="park")
    made.settings = made.settings.model_copy(
        update={"tables": {T: made.settings.tables[T].model_copy(update={"mode": Mode.HISTORY})}}
    )
    plan = made.plan()
    assert plan.delayed == {}
    assert [(table.from_manifest, table.to_manifest, table.start_seq) for table in plan.tables] == [
        (2, 3, 4)
    ]


def test_another_kind_of_change_is_followed(history: History) -> None:
    react(history, drop="park", add="park")
    assert history.plan().delayed == {}


@pytest.mark.usefixtures("blocks_of_ten")
def test_blocks_do_not_carry_a_plan_across(history: History) -> None:
    react(history, rename="park")
    for number in range(30):
        history.commit(row(100 + number), row(100 + number, U))
    assert len(roll_up(history)) == 3
    plan = history.plan()
    tables = {table.table: table for table in plan.tables}
    assert (tables[T].to_manifest, tables[U].to_manifest) == (3, 35)
    assert [part.first_seq for part in tables[T].parts] == [3, 5]
    assert any(layout.parse_rollup_key(part.key) for part in tables[U].parts)
    react(history, rename="apply")
    (table,) = history.plan(T).tables
    assert (table.to_manifest, len(table.changes)) == (35, 1)
    assert any(layout.parse_rollup_key(part.key) for part in table.parts)


def test_a_preview_is_the_plan_and_stores_nothing(history: History) -> None:
    before = sorted(path for path in history.root.rglob("*") if path.is_file())
    shown = preview_plan(history.settings)
    assert sorted(path for path in history.root.rglob("*") if path.is_file()) == before
    assert shown.tables == history.plan().tables
