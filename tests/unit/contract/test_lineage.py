"""Column lineage: what each column of a target has become of, through the steps of a plan."""

from __future__ import annotations

from tideline.contract.lineage import column_lineage
from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.schema import Column, TableSchema
from tideline.contract.steps import ColumnStep, StepKind

ADD, DROP, RENAME, WIDEN = StepKind.ADD, StepKind.DROP, StepKind.RENAME, StepKind.WIDEN


def lineage(*changes: PlannedChange, columns: str = "id a b") -> dict[str, tuple[str, ...]]:
    schema = TableSchema(
        "public.t", tuple(Column(name, "int64", "bigint") for name in columns.split()), ("id",)
    )
    plan = TablePlan("public.t", "file:///w", schema, {}, (), 1, 1, 2, 2, "app", changes=changes)
    found = column_lineage(plan)
    assert [one.column for one in found] == columns.split()
    assert {(one.type, one.source) for one in found} == {("int64", "")}
    return {one.column: one.steps for one in found}


def change(seq: int, *steps: ColumnStep) -> PlannedChange:
    return PlannedChange(seq, "f", steps)


def test_without_steps_there_is_nothing_to_tell() -> None:
    assert lineage() == {"id": (), "a": (), "b": ()}


def test_columns_that_swap_their_names_keep_their_pasts_apart() -> None:
    swap = change(9, ColumnStep(RENAME, "a", was="b"), ColumnStep(RENAME, "b", was="a"))
    widen = change(5, ColumnStep(WIDEN, "a", type="int64"))
    assert lineage(widen, swap) == {
        "id": (),
        "a": ("renamed from b at 9",),
        "b": ("widened to int64 at 5", "renamed from a at 9"),
    }


def test_a_column_that_came_again_has_no_past() -> None:
    steps = (
        change(3, ColumnStep(WIDEN, "a", type="int64")),
        change(4, ColumnStep(DROP, "a")),
        change(6, ColumnStep(ADD, "a", type="int64", default="4711")),
    )
    found = lineage(*steps)
    assert found["a"] == ("added at 6, old rows filled",)
    assert "4711" not in str(found)
