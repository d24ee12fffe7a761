"""Iceberg tables of every layout hold the rows of plain ones, whatever happens; merges read only
the partitions of their keys, and what is sorted stays so."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.targets import REWRITE, THRESHOLDS
from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.test_iceberg import sql_name, stored, target_of
from tests.spark.test_layouts import COLUMNS, KEY, ODD, compare, manifests, named, rows, tell
from tests.spark.test_rebuild import Rebuilder
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import TableLayout
from tideline.settings import Warehouse
from tideline.settings.tables import TableSettings
from tideline_console.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "keyed": {"partition_by": ["bucket(4, id)", "truncate(1, area)"]},
    "others": {"partition_by": ["region", "month(day)"]},
    "sorted": {"cluster_by": ["region", "id"]},
    "both": {
        "partition_by": ["truncate(2, region)", "year(day)"],
        "cluster_by": ["note", "id"],
        "deletion_vectors": False,
    },
}
ORDINARY = (
    *((Mode.CURRENT, name) for name in LAYOUTS),
    *((Mode.HISTORY, name) for name in ("plain", "keyed", "both")),
)
EVERY = tuple((mode, name) for mode in list(Mode)[:3] for name in LAYOUTS)
T = "public.t"


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Warehouse:
    """A warehouse of Iceberg tables that the run's Spark reaches."""
    made = with_catalog(Warehouse(url=(tmp_path / "wh").as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, made)
    return made


def merge(history: History, spark: SparkSession) -> None:
    found = history.merge(spark).tables
    assert {(one.outcome, one.error) for one in found} == {(Outcome.APPLIED, None)}


def spec_of(history: History, table: str) -> list[str]:
    """The table's partition fields by pyiceberg's words for them."""
    made = stored(history, table)
    return [
        f"{one.transform} {made.schema().find_column_name(one.source_id)}"
        for one in made.spec().fields
    ]


def order_of(history: History, table: str) -> list[str]:
    made = stored(history, table)
    return [made.schema().find_column_name(one.source_id) for one in made.sort_order().fields]


@pytest.mark.parametrize(
    "variants", [ORDINARY, pytest.param(EVERY, marks=pytest.mark.long)], ids=["some", "every"]
)
def test_a_layout_changes_no_row(
    tmp_path: Path, place: Warehouse, spark: SparkSession, variants: Sequence[tuple[Mode, str]]
) -> None:
    settings = {named(mode, name): {"mode": mode.value, **LAYOUTS[name]} for mode, name in variants}
    history = History(tmp_path, tables=settings, place=place)
    tables = [named(mode, name) for mode, name in variants]
    history.commit(*(Shaped(schema_of(table, COLUMNS, KEY)) for table in tables))
    for at, (changes, ends_dump) in enumerate(manifests()):
        tell(history, tables, changes, history.last_seq if ends_dump else 0)
        if variants is ORDINARY and at not in (0, 3):
            continue
        merge(history, spark)
        compare(history, spark, variants)
    for mode, name in variants:
        table = named(mode, name)
        expected = rows(history, spark, table)
        by_others = stored(history, table).scan().to_arrow().select(list(COLUMNS)).to_pylist()
        by_spark = [{column: row[column] for column in COLUMNS} for row in expected]
        assert sorted(by_others, key=repr) == sorted(by_spark, key=repr), (mode, name)
        layout = TableLayout.of_properties(stored(history, table).properties)
        assert list(layout.partition_by) == list(LAYOUTS[name].get("partition_by", ()))
        assert order_of(history, table) == list(LAYOUTS[name].get("cluster_by", ()))
        target_of(history, spark, table).files.rewrite(THRESHOLDS, REWRITE)
        assert rows(history, spark, table) == expected, (mode, name)
    assert spec_of(history, named(Mode.CURRENT, "keyed")) == ["bucket[4] id", "truncate[1] area"]
    assert spec_of(history, named(Mode.CURRENT, "others")) == ["identity region", "month day"]


KEYS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "bucket(8, k)": ("int64", [1, 2, 3, 5]),
    "bucket(16, k)": ("string", ["it's", "b", "\\ ${x}", "é"]),
    "bucket(9, k)": ("decimal(12,2)", [Decimal("1.50"), Decimal(-2), Decimal("9.99"), Decimal(7)]),
    "truncate(2, k)": ("string", ["a'x", "a\\y", "zz9", "ééé"]),
    "truncate(10, k)": ("int32", [-3, 15, 27, 41]),
    "truncate(50, k)": ("decimal(12,2)", [Decimal("-0.10"), Decimal(1), Decimal(3), Decimal(9)]),
    "truncate(1, k)": ("binary", [b"a\0", b"b", b"c", b"\xff"]),
    "year(k)": ("date", [date(1960, 1, 1), date(1970, 1, 1), date(2024, 2, 29), date(2025, 1, 1)]),
    "month(k)": (
        "date",
        [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 3, 1)],
    ),
    "day(k)": (
        "timestamp_ntz",
        [datetime(1969, 12, 31, 23), *(datetime(2024, 1, n) for n in (1, 2, 3))],
    ),
    "hour(k)": ("timestamp", [datetime(2024, 1, 1, n, 59, tzinfo=UTC) for n in range(4)]),
    "k": ("string", ["", "__HIVE_DEFAULT_PARTITION__", "a\0b", "/" * 72]),
}


@pytest.mark.parametrize("field", KEYS)
@pytest.mark.parametrize("mode", [Mode.CURRENT, pytest.param(Mode.HISTORY, marks=pytest.mark.long)])
def test_a_small_merge_reads_only_the_partitions_of_its_keys(
    tmp_path: Path, place: Warehouse, spark: SparkSession, field: str, mode: Mode
) -> None:
    """Files of others are not even there. A row whose key moves it to another partition goes on
    being one row, and so does one whose partition changes by a column that is not of the key."""
    kind, keys = KEYS[field]
    layout = {"partition_by": [field, "bucket(2, n)"], "mode": mode.value}
    history = History(tmp_path, tables={T: layout}, place=place)
    history.commit(Shaped(schema_of(T, {"k": kind, "n": "int64", "v": "string"}, ["k"])))
    values = [{"k": key, "n": number, "v": "old"} for number, key in enumerate(keys)]
    history.commit(*(Row(T, "c", one) for one in values))
    merge(history, spark)
    found = target_of(history, spark, T)._session.sql(
        f"SELECT n, _file AS file FROM {sql_name(history, T)}"  # noqa: S608
    )
    files = {row["n"]: row["file"].removeprefix("file:") for row in found.collect()}
    path = files.pop(3)
    assert path not in files.values(), "the last row is alone in its partition"
    shutil.move(path, tmp_path / "away")
    history.commit(
        Row(T, "u", {"k": keys[0], "n": 7, "v": "new"}),
        Row(T, "d", {"k": keys[2]}),
        Row(T, "u", {"k": keys[2], "n": 1, "v": "moved"}, before={"k": keys[1]}),
    )
    merge(history, spark)
    shutil.move(tmp_path / "away", path)
    live = [row for row in history.rows(spark, T) if row.get("_tl_current", True)]
    assert sorted((row["n"], row["v"]) for row in live) == [(1, "moved"), (3, "old"), (7, "new")]


def test_a_merge_of_many_partitions_reads_all(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    history = History(tmp_path, tables={T: {"partition_by": ["truncate(1, id)"]}}, place=place)
    history.commit(Shaped(schema_of(T, {"id": "int64", "v": "string"}, ["id"])))
    history.commit(*(Row(T, "c", {"id": key, "v": "old"}) for key in range(150)))
    merge(history, spark)
    history.commit(*(Row(T, "u", {"id": key, "v": "new"}) for key in range(120)))
    merge(history, spark)
    found = [(row["id"], row["v"]) for row in history.rows(spark, T)]
    assert sorted(found) == [(key, "new" if key < 120 else "old") for key in range(150)]


def test_a_text_that_is_too_long_for_a_folder_is_refused(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    """Of a truncated one only what is left counts."""
    tables = {"public.whole": "v", "public.cut": "truncate(8, v)", "public.buckets": "bucket(4, v)"}
    settings = {table: {"partition_by": [field]} for table, field in tables.items()}
    history = History(tmp_path, tables=settings, place=place)
    for table in tables:
        shape = Shaped(schema_of(table, {"id": "int64", "v": "string"}, ["id"]))
        history.commit(shape, Row(table, "c", {"id": 1, "v": "é" * 43}))
    found = {one.table: one for one in history.merge(spark).tables}
    assert (found["public.whole"].outcome, found["public.whole"].error_kind) == (
        Outcome.FAILED,
        "Misconfigured",
    )
    assert "too long for the name of a folder" in str(found["public.whole"].error)
    for table in ("public.cut", "public.buckets"):
        assert found[table].outcome is Outcome.APPLIED, found[table].error


@pytest.mark.parametrize("names", [ODD[0], ODD[-1]], ids=["first", "last"])
def test_columns_of_every_name(
    tmp_path: Path, place: Warehouse, spark: SparkSession, names: Sequence[str]
) -> None:
    """In partitions, in transforms of the key's column and others, and in the order."""
    wide, *others = names
    fields = [f"bucket(3, {wide})", others[0], *(f"truncate(2, {name})" for name in others[1:5])]
    layout = {"partition_by": fields, "cluster_by": [others[5], wide]}
    history = History(tmp_path, tables={T: layout}, place=place)
    columns = {"id": "int64", **dict.fromkeys(names, "string")}
    history.commit(Shaped(schema_of(T, columns, ["id", wide])))

    def values(key: int, text: str) -> dict[str, Any]:
        return {"id": key, wide: f"w{key}", **dict.fromkeys(others, f"{text}{key}")}

    history.commit(*(Row(T, "c", values(key, "old")) for key in range(6)))
    merge(history, spark)
    moved = {"id": 1, wide: "w1"}
    history.commit(
        Row(T, "u", {**values(1, "moved"), wide: "elsewhere"}, before=moved),
        Row(T, "u", values(2, "new")),
        Row(T, "d", {"id": 3, wide: "w3"}),
    )
    merge(history, spark)
    expected = [
        {**values(1, "moved"), wide: "elsewhere"},
        values(2, "new"),
        *(values(key, "old") for key in (0, 4, 5)),
    ]
    for _ in range(2):
        found = [{name: row[name] for name in columns} for row in history.rows(spark, T)]
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        target_of(history, spark, T).files.rewrite(THRESHOLDS, REWRITE)
    assert order_of(history, T) == [others[5], wide]


def test_renamed_columns_stay_in_the_layout_and_dropped_ones_block(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    """A column may come that has the name that a partition once took from another."""
    layout = {"partition_by": ["bucket(4, id)", "area"], "cluster_by": ["note"]}
    history = History(tmp_path, tables={T: layout}, place=place)
    before = {"id": "int32", "area": "string", "note": "string"}
    after = {"number": "int64", "region": "string", "memo": "string"}
    history.commit(Shaped(schema_of(T, before, ["id"])))
    history.commit(
        *(Row(T, "c", {"id": key, "area": f"a{key % 2}", "note": "n"}) for key in range(8))
    )
    merge(history, spark)
    steps = (
        ColumnStep(StepKind.RENAME, "number", was="id"),
        ColumnStep(StepKind.RENAME, "region", was="area"),
        ColumnStep(StepKind.RENAME, "memo", was="note"),
        ColumnStep(StepKind.WIDEN, "number", type="int64"),
    )
    history.commit(
        Shaped(schema_of(T, after, ["number"]), steps),
        Row(T, "u", {"number": 1, "region": "a0", "memo": "moved"}),
        Row(T, "d", {"number": 2}),
        Row(T, "c", {"number": 2**40, "region": "a9", "memo": "new"}),
    )
    merge(history, spark)
    named_now = TableLayout(("bucket(4, number)", "region"), ("memo",))
    assert TableLayout.of_properties(stored(history, T).properties) == named_now
    assert spec_of(history, T) == ["bucket[4] number", "identity region"]
    assert order_of(history, T) == ["memo"]
    found = {row["number"]: (row["region"], row["memo"]) for row in history.rows(spark, T)}
    expected = {
        0: ("a0", "n"),
        1: ("a0", "moved"),
        **{key: (f"a{key % 2}", "n") for key in range(3, 8)},
        2**40: ("a9", "new"),
    }
    assert found == expected
    more = dict(after)
    for name in ("area", "id_bucket"):  # What Iceberg has named the partitions.
        more[name] = "string"
        step = ColumnStep(StepKind.ADD, name, type="string")
        history.commit(Shaped(schema_of(T, more, ["number"]), (step,)))
        row = {"number": 3, "region": "a1", "memo": name}
        history.commit(Row(T, "u", {**row, **dict.fromkeys(more.keys() - after.keys(), "x")}))
        (receipt,) = history.merge(spark).tables
        assert receipt.error_kind == "Misconfigured"
        assert f"{name!r}, which Iceberg has given to partitions" in str(receipt.error)
        choose(history, **layout, on_change={"add": "ignore"})
        merge(history, spark)
        expected[3] = ("a1", name)
        choose(history, **layout)
    found = {row["number"]: (row["region"], row["memo"]) for row in history.rows(spark, T)}
    assert found == expected
    fewer = {name: kind for name, kind in more.items() if name != "memo"}
    gone = ColumnStep(StepKind.DROP, "memo")
    history.commit(Shaped(schema_of(T, fewer, ["number"]), (gone,)), Row(T, "d", {"number": 0}))
    assert "'memo' was dropped, and the warehouse's table is part" in history.plan().delayed[T]


def choose(history: History, **settings: Any) -> None:
    tables = {T: TableSettings(**settings)}
    history.settings = history.settings.model_copy(update={"tables": tables})


def test_a_rebuild_gives_a_table_its_layout(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    """And maintenance keeps the order that it has then, after merges too."""
    history = History(tmp_path, place=place)
    history.commit(Shaped(schema_of(T, {"id": "int64", "v": "int64", "note": "string"}, ["id"])))
    values = [{"id": key, "v": key * 7919 % 1000, "note": "n" * 50} for key in range(1000)]
    history.commit(*(Row(T, "c", one) for one in values))
    merge(history, spark)
    before = rows(history, spark, T)
    layouts = (
        TableLayout(("bucket(2, id)",), ("v",)),
        TableLayout((), ("v",)),
        TableLayout(("truncate(500, v)", "bucket(2, id)")),
        TableLayout(),
    )
    for layout in layouts:
        choose(history, partition_by=layout.partition_by, cluster_by=layout.cluster_by)
        (status,) = read_status(history.settings).tables
        assert status.layout_wanted == layout
        rebuild(history, spark)
        (status,) = read_status(history.settings).tables
        assert (status.layout, status.layout_wanted) == (layout, None)
        assert rows(history, spark, T) == before
        assert len(spec_of(history, T)) == len(layout.partition_by)
        assert order_of(history, T) == list(layout.cluster_by)
        mode = "hash" if layout.partition_by else "none"
        properties = stored(history, T).properties
        assert properties["write.merge.distribution-mode"] == mode
        assert not properties.get("write.spark.fanout.enabled")
        for number in range(3):
            changed = [{"id": key, "v": key % 1000, "note": "m"} for key in (number, 500, 900)]
            history.commit(*(Row(T, "u", one) for one in changed))
            merge(history, spark)
        before = rows(history, spark, T)
        target_of(history, spark, T).files.rewrite(THRESHOLDS, REWRITE)
        assert rows(history, spark, T) == before
        assert order_of(history, T) == list(layout.cluster_by)
        if layout.cluster_by:
            assert in_order(history, spark)


def in_order(history: History, spark: SparkSession) -> bool:
    """Whether the rows of each file lie in the order of ``v``."""
    found = target_of(history, spark, T)._session.sql(
        f"SELECT _file AS file, _pos AS pos, v FROM {sql_name(history, T)}"  # noqa: S608
    )
    by_place = sorted((row["file"], row["pos"], row["v"]) for row in found.collect())
    return all(one[0] != two[0] or one[2] <= two[2] for one, two in pairwise(by_place))


def rebuild(history: History, spark: SparkSession) -> None:
    from tideline.planner import begin_rebuild, next_step

    record = begin_rebuild(history.settings, T)
    rebuilder = Rebuilder(history, spark)
    while plan := next_step(history.settings, record):
        assert not plan.delayed, plan.delayed
        for one in rebuilder.run(plan):
            assert one.error is None, one.error
