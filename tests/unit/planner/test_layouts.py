"""What plans and status say of layouts and readers: in time, by name, and of that table alone."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.unit.planner.test_planner import apply
from tideline.contract.errors import Fenced, Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import LAYOUT_PROPERTY, TableLayout
from tideline.planner import begin_rebuild
from tideline.planner.rebuild_steps import shadow_settings
from tideline.settings.tables import TableSettings
from tideline_console.doctor_layouts import check_layouts
from tideline_console.plan import read_preview
from tideline_console.plan import run as show_plan
from tideline_console.status import read_status
from tideline_console.status import run as show_status

T, OTHER = "public.t", "public.other"
COLUMNS = {"id": "int32", "a": "string", "at": "timestamp", "flag": "boolean"}
SCHEMA = schema_of(T, COLUMNS, ["id"])
DROP = ColumnStep(StepKind.DROP, "a")
RENAME = ColumnStep(StepKind.RENAME, "b", was="a")
PARTITIONED = TableLayout(partition_by=("a",))


def choose(history: History, **settings: Any) -> None:
    entry = TableSettings(**settings)
    history.settings = history.settings.model_copy(update={"tables": {T: entry}})


def steps(history: History, step: ColumnStep) -> None:
    columns = {name: kind for name, kind in COLUMNS.items() if name != "a"}
    if step.kind is StepKind.RENAME:
        columns["b"] = "string"
    history.commit(Shaped(schema_of(T, columns, ["id"]), (step,)))
    history.commit(Row(T, "c", {"id": 2}))


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.commit(Shaped(SCHEMA), Shaped(schema_of(OTHER, {"id": "int32"}, ["id"])))
    made.commit(Row(T, "c", {"id": 1}), Row(OTHER, "c", {"id": 1}))
    return made


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"partition_by": ["A"]}, "did you mean 'a'"),
        ({"partition_by": ["at"]}, "of type timestamp: partitions are of"),
        ({"cluster_by": ["flag"]}, "of type boolean, by which no table is clustered"),
        ({"cluster_by": ["id"], "mode": Mode.APPEND}, "partitioned by its batches"),
    ],
)
def test_a_table_that_cannot_be_made_so_waits_alone(
    history: History, settings: dict[str, Any], why: str
) -> None:
    choose(history, **settings)
    plan = history.plan()
    assert why in plan.delayed[T]
    assert [table.table for table in plan.tables] == [OTHER]
    (warned,) = check_layouts(history.settings)
    assert (warned.level, warned.name) == ("warning", "layout")
    assert T in warned.message and why in warned.message
    found = {one.table: one for one in read_status(history.settings).tables}
    assert (found[T].state.value, found[OTHER].state.value) == ("target-blocked", "active")
    assert why in str(found[T].reason)


@pytest.mark.parametrize("column", [("at", "timestamp_ntz"), ("a b", "string")])
def test_a_column_that_a_reader_cannot_read_is_named(tmp_path: Path, column: Any) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int64", **dict([column])}, ["id"])))
    choose(history, readers=["redshift-spectrum"])
    assert f"column {column[0]!r} needs a feature: redshift-spectrum" in history.plan().delayed[T]
    choose(history, readers=["trino-480"])
    assert history.plan().tables


def test_mapped_partitions_are_a_feature_of_their_own(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of(T, {"id": "int64", "a b": "string"}, ["id"])))
    choose(history, readers=["duckdb"])
    assert history.plan().tables
    for settings in ({"partition_by": ["a b"]}, {"mode": Mode.APPEND}):
        choose(history, readers=["duckdb"], **settings)
        assert "duckdb cannot read" in history.plan().delayed[T]


@pytest.mark.parametrize("step", [DROP, RENAME], ids=["drop", "rename"])
def test_a_target_stops_before_its_layouts_column_moves(history: History, step: ColumnStep) -> None:
    choose(history, partition_by=["a"])
    apply(history, 2, **PARTITIONED.properties())
    steps(history, step)
    choose(history)  # What it is counts, not what it is to be.
    for layout in ({}, {"cluster_by": ["id"]}):
        choose(history, **layout)
        assert "and the warehouse's table is partitioned by 'a'" in history.plan().delayed[T]
        found = read_status(history.settings).tables[1]
        assert (found.table, found.state.value) == (T, "schema-blocked")
        assert "`tideline rebuild public.t`, which goes on" in str(found.hint)
    choose(history, on_change={step.kind.value: "ignore"})
    assert T not in history.plan().delayed


def test_another_type_of_its_column_is_a_matter_of_the_new_generation(history: History) -> None:
    """Which is made as the settings say, and waits where they cannot be followed."""
    choose(history, partition_by=["a"])
    apply(history, 2, **PARTITIONED.properties())
    low, number = history.last_seq, history.last_number
    begun = {"generation": 1, "generation_seq": low, "generation_manifest": number}
    retype = ColumnStep(StepKind.RETYPE, "a", type="float64")
    history.commit(
        Shaped(schema_of(T, COLUMNS | {"a": "float64"}, ["id"]), (retype,)),
        Row(T, "r", {"id": 1, "a": 1.5}),
        deletes_before=[(T, low)],
        states={T: begun},
    )
    assert "'a', of type float64: partitions are of" in history.plan().delayed[T]
    choose(history, cluster_by=["a"])
    (table,) = (one for one in history.plan().tables if one.table == T)
    assert (table.replace, table.layout) == (True, TableLayout(cluster_by=("a",)))


@pytest.mark.parametrize("step", [DROP, RENAME], ids=["drop", "rename"])
def test_a_target_stops_before_what_a_reader_lacks(history: History, step: ColumnStep) -> None:
    choose(history, readers=["delta-rs", "trino-480"])
    apply(history, 2)
    steps(history, step)
    why = history.plan().delayed[T]
    assert ", and delta-rs cannot read renamed or dropped columns" in why
    assert f"set on_change.{step.kind.value} to ignore" in why
    assert "`tideline dump public.t`" in why
    assert read_status(history.settings).tables[1].state.value == "schema-blocked"
    choose(history, readers=["trino-480"])
    assert T not in history.plan().delayed


def test_status_and_plan_say_what_a_rebuild_would_change(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    apply(history, 2, **PARTITIONED.properties())
    history.commit(Row(T, "c", {"id": 3}))
    choose(history, cluster_by=["id", "at"])
    show_plan(history.settings, [], as_json=False)
    show_status(history.settings, as_json=False)
    said = "is partitioned by 'a', the settings say clustered by 'id', 'at': `tideline rebuild"
    assert capsys.readouterr().out.count(said) == 2
    (table,) = (one for one in read_preview(history.settings, None).tables if one.table == T)
    assert (table.layout, table.layout_to) == (PARTITIONED, TableLayout(cluster_by=("id", "at")))
    choose(history, partition_by=["a"])
    show_plan(history.settings, [], as_json=False)
    assert "partitioned by" not in capsys.readouterr().out
    (planned,) = (one for one in history.plan().tables if one.table == T)
    assert planned.layout == PARTITIONED
    choose(history, partition_by=["at"])
    assert T not in history.plan().delayed, "only the next build needs it"
    (warned,) = check_layouts(history.settings)
    assert "partition_by names 'at'" in warned.message
    with pytest.raises(Misconfigured, match="cannot be rebuilt: partition_by names 'at'"):
        begin_rebuild(history.settings, T)


def test_doctor_finds_nothing_wrong_where_nothing_is(history: History, tmp_path: Path) -> None:
    assert check_layouts(history.settings) == []
    choose(history, partition_by=["a"], readers=["duckdb"])
    (found,) = check_layouts(history.settings)
    assert (found.level, found.message) == ("ok", "1 tables can be made as [tables] says")
    empty = History(tmp_path / "empty", tables={T: {"partition_by": ["b"]}})
    assert check_layouts(empty.settings) == []


def test_a_rebuild_that_began_in_another_layout_is_not_joined(history: History) -> None:
    """What it has built cannot become what the settings ask for; with a text that no folder keeps
    it would fail for ever, whatever they say."""
    apply(history, 2)
    choose(history, partition_by=["a"])
    record = begin_rebuild(history.settings, T)
    choose(history, cluster_by=["a"])
    assert begin_rebuild(history.settings, T) == record, "nothing is built yet"
    beside = copy(history)
    beside.settings = shadow_settings(history.settings, record)
    apply(beside, 2, **PARTITIONED.properties())
    with pytest.raises(
        Fenced, match="is under way, partitioned by 'a'; the settings say clustered"
    ):
        begin_rebuild(history.settings, T)
    assert begin_rebuild(history.settings, T, restart=True).build == 2


def test_a_damaged_layout_is_named(history: History) -> None:
    apply(history, 2, **{LAYOUT_PROPERTY: "{"})
    assert "how its files are laid out" in str(read_status(history.settings).warehouse_error)
