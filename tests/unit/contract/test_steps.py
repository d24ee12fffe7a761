"""Steps that are taken one after another, and the same ones taken at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideline.contract.steps import (
    BETWEEN,
    ColumnStep,
    Origin,
    StepKind,
    at_once,
    origins_after,
    renames_in_order,
    steps_to,
)

NAMES = ("a", "b", "c", "d", "A")


def rename(was: str, name: str) -> ColumnStep:
    return ColumnStep(StepKind.RENAME, name, was=was)


@pytest.mark.parametrize(
    ("steps", "renames"),
    [
        ([rename("a", f"{BETWEEN}2"), rename("b", "a"), rename(f"{BETWEEN}2", "b")], "ab ba"),
        ([rename("a", "b"), rename("b", "c")], "ac"),
        ([rename("b", "c"), rename("a", "b")], "bc ab"),
        ([rename("a", "b"), rename("b", "a")], ""),
        ([ColumnStep(StepKind.DROP, "b"), rename("a", "b")], "ab"),
    ],
)
def test_a_column_is_renamed_at_most_once(steps: list[ColumnStep], renames: str) -> None:
    found = {s.was + s.column for s in at_once(steps) if s.kind is StepKind.RENAME}
    assert found == set(renames.split())


def test_drops_come_first_and_the_rest_stays_as_it_is() -> None:
    add = ColumnStep(StepKind.ADD, "b", type="string", default="x")
    wide = ColumnStep(StepKind.WIDEN, "c", type="int64")
    drop = ColumnStep(StepKind.DROP, "b")
    assert at_once([rename("a", "c"), drop, wide, add]) == (drop, rename("a", "c"), wide, add)


@pytest.mark.parametrize(
    "moves",
    [
        {"a": "A", "A": "d"},
        {"b": "a", "a": "A", "A": "d", "d": "b"},
        {"aa": "aA", "aA": "AA", "AA": "aa"},
    ],
    ids=str,
)
def test_names_that_differ_by_case_only_are_renamed_one_by_one(moves: dict[str, str]) -> None:
    steps = list(renames_in_order(moves))
    held = set(moves)
    for step in steps:
        held.remove(step.was)
        assert step.column not in held, steps
        held.add(step.column)
    assert set(at_once(steps)) == {rename(was, name) for was, name in moves.items()}


@given(st.lists(st.sampled_from(NAMES), unique=True), st.permutations(NAMES), st.data())
def test_both_ways_lead_to_the_same_columns(
    columns: list[str], names: list[str], data: st.DataObject
) -> None:
    """Any columns may go, move and come; a name may serve another column at once."""
    kept = [name for name in columns if data.draw(st.booleans())]
    origins = {name: Origin(was) for name, was in zip(names, kept, strict=False)}
    for name in NAMES:
        if name not in origins and data.draw(st.booleans()):
            origins[name] = Origin(None, "new")
    steps = steps_to(columns, origins)
    assert origins_after(columns, steps) == origins
    together = at_once(steps)
    moves = {step.was: step.column for step in together if step.kind is StepKind.RENAME}
    assert moves == {o.was: n for n, o in origins.items() if o.was is not None and o.was != n}
    assert not any(step.column.startswith(BETWEEN) for step in together)
    assert set(at_once(renames_in_order(moves))) == {rename(w, n) for w, n in moves.items()}
