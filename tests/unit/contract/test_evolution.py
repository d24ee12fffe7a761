"""What becomes of columns: of rows that are older than steps, and of targets that follow or not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.parts import schema_of
from tideline.contract.errors import CorruptData, InvariantBroken, Misconfigured
from tideline.contract.evolution import (
    Ancestor,
    Refill,
    RetainedColumn,
    TargetColumns,
    ancestors,
    filled_since,
    follow,
    names_before,
)
from tideline.contract.modes import Mode
from tideline.contract.plan import PlannedChange, TablePlan
from tideline.contract.steps import ColumnStep, StepKind

ADD, DROP, RENAME, WIDEN = StepKind.ADD, StepKind.DROP, StepKind.RENAME, StepKind.WIDEN
OURS = ["_tl_seq", "_tl_ts"]


def add(name: str, default: str | None = None) -> ColumnStep:
    return ColumnStep(ADD, name, type="int32", default=default)


def drop(name: str) -> ColumnStep:
    return ColumnStep(DROP, name)


def rename(was: str, name: str) -> ColumnStep:
    return ColumnStep(RENAME, name, was=was)


def change(seq: int, *steps: ColumnStep) -> PlannedChange:
    return PlannedChange(seq, "f", steps)


def plan(names: str, *changes: PlannedChange, **more: Any) -> TablePlan:
    """A plan whose source has the columns ``names`` at its end; ``id`` is the key."""
    schema = schema_of("public.t", dict.fromkeys(names.split(), "int32"), ["id"])
    made = TablePlan(
        table="public.t",
        target="memory://t",
        schema=schema,
        schemas={},
        parts=(),
        from_manifest=1,
        from_seq=9,
        to_manifest=2,
        to_seq=99,
        app_id="x",
        changes=changes,
    )
    return replace(made, **more)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change(1, rename("a", "b"), rename("b", "a"))], {"a": "b", "b": "a"}),
        ([change(1, rename("a", "c")), change(2, rename("c", "d"))], {"d": "a", "b": "b"}),
        ([change(1, rename("a", "b"), rename("b", "c"))], {"b": "a", "c": "b"}),
        ([change(1, rename("a", "A"))], {"A": "a", "b": "b"}),
        ([change(1, drop("a")), change(2, rename("b", "a"))], {"a": "b"}),
        ([change(1, drop("a"), rename("b", "a"))], {"a": "b"}),
        ([change(1, rename("a", "x"), rename("b", "a")), change(2, drop("x"))], {"a": "b"}),
        ([change(1)], {"a": "a", "b": "b"}),
    ],
)
def test_values_follow_their_column(changes: list[PlannedChange], expected: dict[str, str]) -> None:
    assert ancestors(["a", "b"], changes) == {n: Ancestor(was) for n, was in expected.items()}


def test_a_column_that_returns_is_another_one() -> None:
    again = [change(1, drop("a"), add("a", "7"))]
    assert ancestors(["a"], again) == {"a": Ancestor(None, "7", "int32")}
    later = [*again, change(2, rename("a", "b")), change(3, add("a"))]
    assert ancestors(["a"], later) == {
        "b": Ancestor(None, "7", "int32"),
        "a": Ancestor(None, None, "int32"),
    }


def test_what_the_source_had_before_is_read_off_the_steps() -> None:
    made = plan("id b c", change(1, drop("x"), rename("a", "b")), change(2, add("c")))
    assert names_before(made) == {"id", "a", "x"}
    swapped = plan("id a b", change(1, rename("a", "b"), rename("b", "a")))
    assert names_before(swapped) == {"id", "a", "b"}


def test_a_swap_moves_two_columns_and_the_names_in_rows() -> None:
    made = plan("id a b", change(10, rename("a", "b"), rename("b", "a")))
    followed = follow(["id", "a", "b", *OURS], TargetColumns(), made)
    assert {n: one.column for n, one in followed.ancestors.items() if n != one.column} == {
        "b": "a",
        "a": "b",
    }
    assert list(followed.ancestors) == ["id", "b", "a", *OURS]
    assert followed.moves
    assert followed.columns == TargetColumns(
        seq=10, refill=Refill(names={"a": ("b",), "b": ("a",)})
    )


def test_a_dropped_column_is_emptied_or_goes() -> None:
    made = plan("id", change(10, drop("a")))
    kept = follow(["id", "a"], TargetColumns(), made)
    assert kept.ancestors["a"] == Ancestor(None, like="a")
    assert (kept.columns.left, kept.columns.refill.names) == (("a",), {"a": ()})
    gone = follow(["id", "a"], TargetColumns(), replace(made, drop_columns=True))
    assert (set(gone.ancestors), gone.columns.left, gone.moves) == ({"id"}, (), True)


def test_a_name_that_returns_takes_the_place_of_the_empty_column() -> None:
    stands = TargetColumns(seq=10, left=("A",))
    followed = follow(["id", "A"], stands, plan("id a", change(20, add("a", "1"))))
    assert followed.ancestors == {"id": Ancestor("id"), "a": Ancestor(None, "1", "int32")}
    assert followed.columns.left == ()
    assert followed.columns.refill == Refill(fills={"a": ("int32", "1")}, names={"A": ()})


def test_a_column_of_somebody_else_is_not_written_into() -> None:
    with pytest.raises(Misconfigured, match="'a'") as raised:
        follow(["id", "a"], TargetColumns(), plan("id a", change(20, add("a"))))
    assert "rename or drop" in (raised.value.hint or "")


def test_a_table_that_others_dropped_columns_of_as_old_workers_said() -> None:
    """``dropped`` of the plan, and no step: the name is free for a column that comes back."""
    made = plan("id a", change(20, add("a")), dropped=("b",))
    assert set(follow(["id", "b"], TargetColumns(), made).ancestors) == {"id", "b", "a"}


@pytest.mark.parametrize("taken", [True, False])
def test_steps_that_are_taken_are_not_taken_again(taken: bool) -> None:
    made = plan("id c", change(10, rename("a", "b")), change(20, rename("b", "c")))
    stands = TargetColumns(seq=10) if taken else TargetColumns()
    followed = follow(["id", "b" if taken else "a"], stands, made)
    assert followed.ancestors["c"].column == ("b" if taken else "a")
    assert followed.columns.seq == 20


def test_what_is_ignored_stays_away_also_in_later_plans() -> None:
    made = plan("id x", change(10, add("x")), ignored=(ADD,))
    first = follow(["id"], TargetColumns(), made)
    assert (set(first.ancestors), first.columns.away) == ({"id"}, ("x",))
    later = follow(["id"], first.columns, plan("id y", change(20, rename("x", "y"))))
    assert (set(later.ancestors), later.columns.away) == ({"id"}, ("y",))
    assert follow(["id"], later.columns, plan("id", change(30, drop("y")))).columns.away == ()


def test_a_drop_that_is_ignored_keeps_the_values_until_the_name_returns() -> None:
    made = plan("id", change(10, drop("a")), ignored=(DROP,))
    first = follow(["id", "a"], TargetColumns(), made)
    assert first.ancestors["a"] == Ancestor("a")
    assert first.columns.retained == {"a": RetainedColumn(10, "a")}
    assert not first.moves
    again = follow(["id", "a"], first.columns, plan("id a", change(20, add("a"))))
    assert again.ancestors["a_until_10"] == Ancestor("a")
    assert again.ancestors["a"] == Ancestor(None, None, "int32")
    assert again.columns.retained == {"a_until_10": RetainedColumn(10, "a")}


def test_a_rename_that_is_ignored_copies_the_values() -> None:
    made = plan("id b", change(10, rename("a", "b")), ignored=(RENAME,))
    followed = follow(["id", "a"], TargetColumns(), made)
    assert followed.ancestors["b"] == Ancestor("a", copied=True)
    assert followed.columns.refill == Refill(copies={"b": "a"}, names={"a": ("a", "b")})
    assert not followed.moves
    both = follow(["id", "a"], TargetColumns(), replace(made, ignored=(RENAME, ADD)))
    assert (set(both.ancestors), both.columns.away) == ({"id", "a"}, ("b",))


def test_a_swap_that_is_ignored_copies_what_was_there() -> None:
    made = plan("id a b", change(10, rename("a", "b"), rename("b", "a")), ignored=(RENAME,))
    followed = follow(["id", "a", "b"], TargetColumns(), made)
    assert followed.columns.refill.copies == {"b": "a_until_10", "a": "b_until_10"}
    assert followed.ancestors["a_until_10"] == Ancestor("a")


def test_a_narrow_column_stays_narrow_under_its_next_name() -> None:
    wide = ColumnStep(WIDEN, "a", type="int64")
    first = follow(["id", "a"], TargetColumns(), plan("id a", change(10, wide), ignored=(WIDEN,)))
    assert first.columns.narrow == ("a",)
    made = plan("id b", change(20, rename("a", "b")), change(30, replace(wide, column="b")))
    assert follow(["id", "a"], first.columns, made).columns.narrow == ("b",)


def test_keys_follow_whatever_is_ignored() -> None:
    steps = (rename("number", "id"), ColumnStep(WIDEN, "id", type="int64"))
    made = plan("id", change(10, *steps), ignored=(ADD, DROP, RENAME, WIDEN))
    followed = follow(["number"], TargetColumns(), made)
    assert followed.ancestors == {"id": Ancestor("number")}
    assert followed.columns.narrow == ()


@pytest.mark.parametrize("mode", [Mode.HISTORY, Mode.APPEND])
def test_what_is_past_keeps_its_values(mode: Mode) -> None:
    made = plan("id", change(10, drop("a")), change(20, add("b", "1")), mode=mode)
    followed = follow(["id", "a"], TargetColumns(), replace(made, schema=plan("id b").schema))
    assert followed.ancestors["a"] == Ancestor("a")
    assert followed.columns.retained == {"a": RetainedColumn(10, "a", carried=False)}
    assert bool(followed.columns.refill.fills) is (mode is Mode.HISTORY)


@pytest.mark.parametrize("mode", [Mode.CURRENT, Mode.SOFT_DELETES, Mode.HISTORY, Mode.APPEND])
def test_a_row_carries_what_its_owner_ignores_the_drop_of_but_a_log_has_no_rows(mode: Mode) -> None:
    dropped = plan("id", change(10, drop("a")), mode=mode, ignored=(DROP,))
    carried = mode is not Mode.APPEND
    kept = {"a": RetainedColumn(10, "a", carried=carried)}
    assert follow(["id", "a"], TargetColumns(), dropped).columns.retained == kept
    renamed = plan("id b", change(10, rename("a", "b")), mode=mode, ignored=(RENAME,))
    assert follow(["id", "a"], TargetColumns(), renamed).columns.retained == kept


def test_since_when_columns_have_their_defaults() -> None:
    made = plan(
        "id c d",
        change(10, add("a", "1"), add("b", "1"), add("d")),
        change(20, rename("a", "c"), drop("b")),
        change(30, add("e", "1"), drop("c")),
        change(40, rename("e", "c")),
    )
    assert filled_since(made, TargetColumns()) == {"c": 30}
    kept = {
        "b": RetainedColumn(20, "b"),
        "c_until_30": RetainedColumn(30, "c"),
        "old": RetainedColumn(5, "old"),
    }
    stands = TargetColumns(retained=kept, away=("c",))
    assert filled_since(made, stands) == {"b": 10, "c_until_30": 10}


def test_no_plan_crosses_a_new_type() -> None:
    with pytest.raises(InvariantBroken, match="retype"):
        follow(["id"], TargetColumns(), plan("id", change(10, ColumnStep(StepKind.RETYPE, "a"))))


def test_how_columns_stand_survives_its_text() -> None:
    stands = TargetColumns(
        seq=7,
        away=("x",),
        retained={"a": RetainedColumn(3, "b", carried=False)},
        left=("l",),
        narrow=("n",),
        refill=Refill(fills={"f": ("string", "it's")}, copies={"c": "d"}, names={"o": ("p",)}),
    )
    assert TargetColumns.parse(stands.text()) == stands
    assert TargetColumns.parse(None) == TargetColumns()
    with pytest.raises(CorruptData, match="how its columns stand"):
        TargetColumns.parse("[]")
