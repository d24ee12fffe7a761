"""What is said of readers, and what follows from it for a table, its steps and its layout."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parts import schema_of
from tideline.contract.layout_rules import layout_problem
from tideline.contract.modes import Mode
from tideline.contract.planning.stops import Policy
from tideline.contract.readers import READERS, Evidence, Feature, check_readers, lacking
from tideline.contract.schema import parse_table
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import TableLayout
from tideline.settings.tables import TableSettings, settings_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "LAYOUT.md"
_LINE = re.compile(r"^\| `([\w.-]+)` \|[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.M)
_SAID = {"yes": True, "not if partitioned": True, "no": False, "**misread**": False}
RENAME = ColumnStep(StepKind.RENAME, "b", was="a")
DROP = ColumnStep(StepKind.DROP, "a")
WIDEN = ColumnStep(StepKind.WIDEN, "a", type="int64")
LOCAL = ColumnStep(StepKind.ADD, "a", type="timestamp_ntz")
SPACED = ColumnStep(StepKind.ADD, "a b", type="string")


def test_the_page_has_what_the_code_has() -> None:
    found = {
        name: [cell.strip() for cell in cells]
        for name, *cells in _LINE.findall(PAGE.read_text().partition("\n## Readers")[2])
    }
    assert sorted(found) == sorted(READERS)
    for name, (*said, known_from) in found.items():
        reads = {one for one, word in zip(Feature, said, strict=True) if _SAID[word]}
        assert reads == READERS[name].reads, name
        assert ("not if partitioned" in said) is not READERS[name].mapped_partitions, name
        assert (known_from == "run") is (READERS[name].evidence is Evidence.RUN), name


def test_an_unknown_reader_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no such reader: 'trino'; did you mean trino-480\?") as e:
        check_readers(["duckdb", "trino"])
    assert all(name in str(e.value) for name in READERS)


def test_one_reader_that_lacks_a_feature_is_enough() -> None:
    assert lacking(["duckdb", "databricks-16.4"]) == {}
    assert lacking(["duckdb", "athena", "bigquery"]) == {
        Feature.TYPE_WIDENING: ["athena", "bigquery"],
        Feature.TIMESTAMP_NTZ: ["bigquery"],
    }
    assert lacking(["duckdb"], partitioned=True) == {Feature.COLUMN_MAPPING: ["duckdb"]}
    assert not TableSettings(readers=("delta-rs",)).vectors
    assert TableSettings(readers=("athena",)).vectors


@pytest.mark.parametrize(
    ("step", "feature"),
    [
        (RENAME, Feature.COLUMN_MAPPING),
        (DROP, Feature.COLUMN_MAPPING),
        (SPACED, Feature.COLUMN_MAPPING),
        (WIDEN, Feature.TYPE_WIDENING),
        (LOCAL, Feature.TIMESTAMP_NTZ),
    ],
)
def test_a_step_stops_for_the_feature_that_it_needs(step: ColumnStep, feature: Feature) -> None:
    def obstacle(**policy: Any) -> str:
        found = Policy(**policy).obstacle(step)
        return "" if found is None else found.reason

    assert f"feature {feature.value}" in obstacle(lacking={feature: ("x",)})
    others = {one: ("x",) for one in Feature if one is not feature}
    assert not obstacle(lacking=others)
    assert not obstacle(lacking={feature: ("x",)}, ignores=(step.kind,))


def test_each_feature_of_an_added_column_stops() -> None:
    step = ColumnStep(StepKind.ADD, "a b", type="timestamp_ntz")
    for feature in (Feature.COLUMN_MAPPING, Feature.TIMESTAMP_NTZ):
        assert Policy(lacking={feature: ("x",)}).obstacle(step) is not None, feature


def test_a_log_keeps_what_the_source_drops() -> None:
    lacks = {Feature.COLUMN_MAPPING: ("x",)}
    for mode in Mode:
        stops = Policy(lacking=lacks, mode=mode).obstacle(DROP) is not None
        assert stops is (mode in (Mode.CURRENT, Mode.SOFT_DELETES)), mode


@pytest.mark.parametrize("key", ["partition_by", "cluster_by"])
def test_columns_of_a_layout_stay(key: str) -> None:
    columns: Any = {key: ("a",)}
    policy = Policy(layout=TableLayout(**columns))
    assert policy.obstacle(DROP) is not None and policy.obstacle(RENAME) is not None
    assert (policy.obstacle(WIDEN) is not None) is (key == "partition_by")
    assert policy.obstacle(ColumnStep(StepKind.DROP, "c")) is None
    assert Policy(layout=policy.layout, ignores=(StepKind.DROP,)).obstacle(DROP) is None


def test_a_layout_replaces_the_other_kind_of_an_earlier_entry() -> None:
    entries = {
        "*.*": TableSettings(partition_by=("a",), readers=("athena",)),
        "shop.*": TableSettings(cluster_by=("b",)),
        "shop.plain": TableSettings(cluster_by=()),
    }
    shop = settings_of(parse_table("shop.orders"), entries)
    assert (shop.layout, shop.readers) == (TableLayout(cluster_by=("b",)), ("athena",))
    assert settings_of(parse_table("shop.plain"), entries).layout == TableLayout()
    assert settings_of(parse_table("else.where"), entries).layout == TableLayout(("a",))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"cluster_by": ["a", "A"]}, "must name each column once"),
        ({"partition_by": [""]}, "must name each column once"),
        ({"cluster_by": list("abcde")}, "at most 4 items"),
        ({"readers": ["duck"]}, "did you mean duckdb"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TableSettings(**values)


def test_kinds_that_no_folder_holds_are_refused() -> None:
    for kind in ("float64", "decimal(10,2)", "timestamp", "timestamp_ntz", "binary"):
        schema = schema_of("public.t", {"id": "int32", "x": kind}, ["id"])
        assert layout_problem(TableLayout(partition_by=("x",)), schema, Mode.CURRENT), kind
    for kind in ("string", "date", "boolean", "int64"):
        schema = schema_of("public.t", {"id": "int32", "x": kind}, ["id"])
        assert layout_problem(TableLayout(partition_by=("x",)), schema, Mode.CURRENT) is None
