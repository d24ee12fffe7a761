"""Which targets a plan has described again, without Spark: their own property decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planning_modes import T, apply
from tideline.contract.description import (
    COMMENT_MAX,
    DESCRIPTION_PROPERTY,
    Described,
    decode_description,
    describe,
    encode_description,
)
from tideline.contract.open_state import TableCondition
from tideline.contract.schema import Column, TableSchema
from tideline_console.plan import run as show_plan

COLUMNS = {"id": "int32", "v": "string"}
SCHEMA = schema_of(T, COLUMNS, ["id"])


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Rows, and a table that has them all; the catalog says ``a`` of it."""
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    made.commit(Row(T, "c", {"id": 1, "v": "x"}))
    apply(made, 2)
    made.commit(states=reported(made, "a", "v"))
    return made


def reported(history: History, comment: str, *not_null: str) -> dict[str, dict[str, Any]]:
    found = describe(T, comment, {"id": "key", "gone": "a column that is not there"}, not_null)
    history.chain.write_description(found)
    return {T: {"description": found.fingerprint}}


def note(history: History, fingerprint: str) -> None:
    """Have the target say what it says once it is described."""
    path = history.target(T).removeprefix("file://")
    text = Described(fingerprint).text()
    DeltaTable(path).alter.set_table_properties(
        {DESCRIPTION_PROPERTY: text}, raise_if_not_exists=False
    )


def test_a_target_that_has_all_rows_is_described_once(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = history.plan()
    assert (plan.tables, plan.nothing_to_do) == ((), False)
    (planned,) = plan.descriptions
    assert (planned.target, planned.comment, planned.more) == (history.target(T), "a", False)
    assert (planned.columns, planned.not_null) == ({"id": "key"}, ("id", "v"))
    show_plan(history.settings, [], as_json=False)
    assert f"{T} gets the comments and NOT NULL" in capsys.readouterr().out
    note(history, planned.fingerprint)
    assert history.plan().nothing_to_do
    history.commit(states=reported(history, "b", "v"))
    assert [one.comment for one in history.plan().descriptions] == ["b"]


def test_other_columns_have_it_described_again(history: History) -> None:
    note(history, history.plan().descriptions[0].fingerprint)
    columns = tuple(Column(c.name, c.type, c.source_type, nullable=False) for c in SCHEMA.columns)
    history.commit(Shaped(TableSchema(T, columns, ("id",))))
    history.commit(Row(T, "c", {"id": 2, "v": "y"}))
    (table,), (planned,) = history.plan().tables, history.plan().descriptions
    assert (table.target, planned.more) == (planned.target, False)
    assert planned.not_null == ("id", "v"), "the log tells of it, on MySQL and MariaDB"


def test_what_a_plan_leaves_waiting_is_told(tmp_path: Path) -> None:
    made = History(tmp_path, merge={"parts_max": 1})
    made.commit(Shaped(SCHEMA))
    made.commit(Row(T, "c", {"id": 1, "v": "x"}))
    made.commit(Row(T, "c", {"id": 2, "v": "x"}), states=reported(made, "a"))
    plan = made.plan()
    assert (plan.to_manifest, [one.more for one in plan.descriptions]) == (2, [True])


@pytest.mark.parametrize("condition", [TableCondition.QUARANTINED, TableCondition.SCHEMA_BLOCKED])
def test_a_table_that_stands_still_is_left(history: History, condition: TableCondition) -> None:
    reason = {"condition": condition, "since_seq": 3, "reason": "for a test"}
    history.commit(states={T: reason})
    assert history.plan().descriptions == ()


def test_a_chain_without_descriptions_plans_none(tmp_path: Path) -> None:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA))
    made.commit(Row(T, "c", {"id": 1, "v": "x"}))
    assert made.plan().descriptions == ()


def test_no_comment_is_an_empty_one_and_a_long_one_is_cut() -> None:
    bare = describe(T, None, {"id": None}, ("b", "a"))
    assert bare == describe(T, "", {"id": ""}, ("a", "b"))
    assert decode_description(encode_description(bare)).fingerprint == bare.fingerprint
    text = describe(T, "x" * COMMENT_MAX + "y", {}, ()).comment
    assert (len(text), text[-1]) == (COMMENT_MAX, "…")
    assert describe(T, "x" * COMMENT_MAX, {}, ()).comment == "x" * COMMENT_MAX
