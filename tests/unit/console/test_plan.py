"""``tideline plan``: what a merge would do, before it does it, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import Emptied, History, Row, Shaped, schema_of
from tests.unit.planner.test_planner import apply
from tests.unit.planner.test_planning_modes import apply as apply_as
from tests.unit.planner.test_policies import react
from tideline.contract.modes import Mode
from tideline.contract.open_state import TableCondition
from tideline.contract.steps import ColumnStep, StepKind
from tideline_console.plan import run

T = "public.t"
STEPS = (
    ColumnStep(StepKind.DROP, "gone"),
    ColumnStep(StepKind.RENAME, "b", was="a"),
    ColumnStep(StepKind.WIDEN, "n", type="int64"),
    ColumnStep(StepKind.ADD, "c", type="int32", default="1"),
    ColumnStep(StepKind.ADD, "d", type="int32"),
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A table that is merged as far as manifest 2, and has changed since in every way."""
    made = History(tmp_path)
    first = {"id": "int32", "gone": "string", "a": "string", "n": "int32"}
    made.commit(Shaped(schema_of(T, first, ["id"])))
    made.commit(Row(T, "c", {"id": 1}))
    apply(made, 2)
    last = {"id": "int32", "b": "string", "n": "int64", "c": "int32", "d": "int32"}
    made.commit(Row(T, "c", {"id": 2}), Shaped(schema_of(T, last, ["id"]), STEPS), Emptied(T))
    made.commit(Row(T, "c", {"id": 3}), states={T: {
        "condition": TableCondition.NEEDS_RESNAPSHOT, "since_seq": 4, "reason": "schema change: d",
    }})  # fmt: skip
    return made


def text(history: History, capsys: pytest.CaptureFixture[str]) -> str:
    run(history.settings, [], as_json=False)
    return re.sub(r"[ \t]+", " ", capsys.readouterr().out)


def document(history: History, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    run(history.settings, [T], as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_steps_and_what_they_cost(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    (table,) = document(history, capsys)["tables"]
    assert (table["action"], table["after_manifest"], table["to_manifest"]) == ("merge", 2, 4)
    assert (table["rows"], table["parts"], table["deletes_unseen"]) == (2, 2, True)
    assert table["bytes"] > 0
    assert [(step["change"], step["cost"]) for step in table["steps"]] == [
        ("column 'gone' was dropped", "metadata only"),
        ("column 'a' was renamed to 'b'", "metadata only"),
        ("column 'n' was widened to int64", "metadata only"),
        ("column 'c' was added", "rewrites the table"),
        ("column 'd' was added", "metadata only"),
    ]
    shown = text(history, capsys)
    for words in ("public.t merge 2 4 2 2", "rewrites the table", "NULL in all rows",
                  "whole table is due: needs-resnapshot: schema change: d"):  # fmt: skip
        assert words in shown


def test_what_is_ignored_says_so(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    react(history, add="ignore", drop="ignore", rename="ignore", widen="ignore")
    (table,) = document(history, capsys)["tables"]
    assert all(step["effect"].startswith("ignored: ") for step in table["steps"])
    assert [step["cost"] for step in table["steps"]][1] == "rewrites the table"


def test_what_parks_and_why(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    react(history, rename="park", add="park")
    shown = text(history, capsys)
    assert "nothing to merge up to manifest" in shown
    assert "public.t is delayed: blocked before sequence 4: column 'a' was renamed to 'b'" in shown
    assert "public.t will stop before the next: add, rename" in shown


def test_columns_of_the_key_follow_whatever_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}))
    apply(made, 2)
    rename = ColumnStep(StepKind.RENAME, "number", was="id")
    made.commit(Shaped(schema_of(T, {"number": "int32"}, ["number"]), (rename,)))
    react(made, rename="ignore")
    (table,) = document(made, capsys)["tables"]
    assert [step["effect"] for step in table["steps"]] == ["the column is renamed"]


@pytest.mark.parametrize(
    ("mode", "effect", "cost"),
    [
        (Mode.SOFT_DELETES, "gets its default in rows that are there", "rewrites the table"),
        (Mode.HISTORY, "gets its default in rows that are current", "rewrites the table"),
        (Mode.APPEND, "NULL in older rows", "metadata only"),
    ],
)
def test_a_default_costs_what_the_mode_makes_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: Mode, effect: str, cost: str
) -> None:
    made = History(tmp_path)
    made.commit(Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}))
    apply_as(made, 2, mode=mode)
    add = ColumnStep(StepKind.ADD, "c", type="int32", default="1")
    made.commit(Shaped(schema_of(T, {"id": "int32", "c": "int32"}, ["id"]), (add,)))
    (table,) = document(made, capsys)["tables"]
    ((reported, costs),) = [(step["effect"], step["cost"]) for step in table["steps"]]
    assert reported.endswith(effect)
    assert costs == cost
