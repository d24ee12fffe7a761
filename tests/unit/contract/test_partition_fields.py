"""Partition fields in the text form of the settings, and what tables of each format can have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.parts import schema_of
from tideline.contract.errors import Misconfigured
from tideline.contract.layout_rules import layout_problem
from tideline.contract.modes import Mode
from tideline.contract.partition_fields import PartitionField, Transform, parse_field
from tideline.contract.planning.stops import Policy
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import TableLayout
from tideline.settings import make_settings
from tideline.settings.tables import TableSettings

SCHEMA = schema_of(
    "public.t",
    {
        "id": "int64",
        "name": "string",
        "t": "timestamp",
        "d": "date",
        "f": "float64",
        "t_day": "int32",
    },
    ["id"],
)


@pytest.mark.parametrize(
    ("text", "field", "canonical"),
    [
        ("area", PartitionField("area"), "area"),
        (" Bucket( 16 ,id ) ", PartitionField("id", Transform.BUCKET, 16), "bucket(16, id)"),
        (
            "truncate(10, a, b)",
            PartitionField("a, b", Transform.TRUNCATE, 10),
            "truncate(10, a, b)",
        ),
        ("DAY(a b)", PartitionField("a b", Transform.DAY), "day(a b)"),
        ("hour(16, x)", PartitionField("16, x", Transform.HOUR), "hour(16, x)"),
        ("year(f(x))", PartitionField("f(x)", Transform.YEAR), "year(f(x))"),
        ("bucket(id)", PartitionField("bucket(id)"), "bucket(id)"),
        ("bucket(0, id)", PartitionField("bucket(0, id)"), "bucket(0, id)"),
        ("identity(id)", PartitionField("identity(id)"), "identity(id)"),
        ("month()", PartitionField("month()"), "month()"),
    ],
)
def test_a_text_is_a_transform_or_a_column(
    text: str, field: PartitionField, canonical: str
) -> None:
    assert parse_field(text) == field
    assert str(field) == canonical
    assert parse_field(canonical) == field


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        (TableLayout(("bucket(4, f)",)), "'bucket(4, f)', of type float64: buckets are of"),
        (TableLayout(("hour(d)",)), "of type date: hours are of timestamp, timestamp_ntz"),
        (TableLayout(("truncate(3, t)",)), "truncates are of"),
        (TableLayout(("t",)), "partitions are of boolean, date, decimal"),
        (TableLayout(("years(t)",)), "transforms are bucket(number, column), truncate("),
        (TableLayout(("bucket(id)",)), "transforms are bucket(number, column), truncate("),
        (TableLayout(("bucket(4, ID)",)), "did you mean 'id'?"),
        (TableLayout(("day(t)",)), "Iceberg names 't_day' as a column of the table is named"),
        (TableLayout((), ("nme",)), "did you mean 'name'?"),
    ],
)
def test_a_layout_that_iceberg_cannot_have_is_named(layout: TableLayout, why: str) -> None:
    assert why in str(layout_problem(layout, SCHEMA, Mode.CURRENT, "iceberg"))


def test_a_layout_of_both_kinds_and_transforms_is_icebergs_alone() -> None:
    both = TableLayout(("bucket(16, id)", "month(t)", "truncate(2, name)"), ("d", "name"))
    assert layout_problem(both, SCHEMA, Mode.CURRENT, "iceberg") is None
    problem = str(layout_problem(both, SCHEMA, Mode.CURRENT))
    assert "bucket(16, id), which no Delta table has: name columns, or set format" in problem
    plain = TableLayout(("name",), ("d",))
    assert "exclude each other" in str(layout_problem(plain, SCHEMA, Mode.CURRENT))
    assert "partitioned by its batches" in str(layout_problem(both, SCHEMA, Mode.APPEND, "iceberg"))


@pytest.mark.parametrize(
    "values", [["id", "bucket(4, ID)"], ["day(t)", "hour(t)"], ["bucket(2, a)"] * 2]
)
def test_each_column_is_named_once(values: list[str]) -> None:
    with pytest.raises(ValueError, match="must name each column once"):
        TableSettings(partition_by=tuple(values))


TRANSFORM = {"partition_by": ["bucket(4, id)"]}
BOTH = {"partition_by": ["a"], "cluster_by": ["b"]}


@pytest.mark.parametrize("layout", [TRANSFORM, BOTH], ids=["transform", "both"])
@pytest.mark.parametrize(
    ("warehouse", "others", "own", "refused"),
    [
        ("delta", None, None, True),
        ("delta", "iceberg", None, False),
        ("delta", "iceberg", "delta", True),
        ("delta", None, "iceberg", False),
        ("iceberg", None, None, False),
        ("iceberg", None, "delta", True),
    ],
)
def test_settings_say_which_tables_are_meant(
    layout: dict[str, Any], warehouse: str, others: str | None, own: str | None, refused: bool
) -> None:
    """An entry that can be of Iceberg tables is left to the table that it meets."""
    entry = {**layout, **({} if own is None else {"format": own})}
    values = {
        "pipeline": "p",
        "source": {"url": "postgresql://u@h/d"},
        "store": {"url": "file:///s"},
        "warehouse": {
            "url": "file:///w",
            "format": warehouse,
            "iceberg": {"catalog": "jdbc", "url": "sqlite:////w/catalog.db"},
        },
        "tables": {"*.*": {} if others is None else {"format": others}, "public.t": entry},
    }
    if not refused:
        assert make_settings(values).tables["public.t"].layout
        return
    with pytest.raises(Misconfigured) as failed:
        make_settings(values)
    assert "public.t: partition_by" in str(failed.value)


def test_what_a_target_stops_at_depends_on_its_format() -> None:
    layout = TableLayout(("bucket(4, id)", "hour(t)"), ("name",))
    steps = {
        "rename": [ColumnStep(StepKind.RENAME, "x", was=name) for name in ("id", "t", "name")],
        "widen": [ColumnStep(StepKind.WIDEN, "id", type="decimal(20,0)")],
        "drop": [ColumnStep(StepKind.DROP, name) for name in ("id", "t", "name")],
        "lose": [ColumnStep(StepKind.WIDEN, "t", type="float64")],
    }
    for by_ids, stopped in ((True, {"drop", "lose"}), (False, {"rename", "widen", "drop", "lose"})):
        policy = Policy(layout=layout, by_ids=by_ids)
        for kind, found in steps.items():
            for step in found:
                assert (policy.obstacle(step) is not None) is (kind in stopped), (by_ids, step)


def test_a_layout_follows_renames() -> None:
    layout = TableLayout(("bucket(4, id)", "area"), ("id", "note"))
    assert layout.renamed({"id": "area", "area": "id"}) == TableLayout(
        ("bucket(4, area)", "id"), ("area", "note")
    )
    assert str(layout) == "partitioned by 'bucket(4, id)', 'area' and clustered by 'id', 'note'"
    assert TableLayout.of_properties(layout.properties()) == layout
