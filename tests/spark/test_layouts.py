# ruff: noqa: S608  statements are made of constants
"""Tables that are partitioned or clustered hold the same rows as plain ones, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from devtools.services.s3 import S3Server
from tests.conformance.targets import REWRITE, THRESHOLDS
from tests.fixtures.hostile_names import NAMES, VARIABLE, one_case
from tests.fixtures.object_storage import place_in
from tests.fixtures.parts import Emptied, Event, History, Row, Shaped, schema_of
from tests.spark.test_rebuild import Rebuilder
from tideline.contract.errors import Misconfigured
from tideline.contract.modes import Mode
from tideline.contract.readers import NEEDS_MAPPING
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.table_layout import TableLayout
from tideline.settings.tables import TableSettings
from tideline.store.objects import open_store
from tideline.warehouse.access import storage_options
from tideline_console.plan import run as show_plan
from tideline_console.status import read_status
from tideline_console.status import run as show_status
from tideline_spark.formats.registry import open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {"area": "string", "id": "int64", "region": "string", "day": "date", "note": "string"}
KEY = ["area", "id"]
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "parts": {"partition_by": ["area", "region"]},
    "clusters": {"cluster_by": ["region", "id"]},
    "whole": {"partition_by": ["region", "day"], "deletion_vectors": False},
}
HOSTILE = (
    "a/b=c",
    "..",
    "'; \\",
    "é😀 ",
    "%2F",
    "null",
    "\n\t",
    "${user.name}",
    "x" * 214,
    None,
    "ok",
)
NOT_KEPT = ("", "a\0b", "/" * 72, "x" * 215, "__HIVE_DEFAULT_PARTITION__")
"""… and texts that no folder keeps: these would be NULL, or no name of one."""
ODD_NAMES = sorted(
    one_case([one.name.replace(VARIABLE, "JAVA_HOME") for one in NAMES]),
    key=lambda name: not NEEDS_MAPPING.isdisjoint(name),
)
ODD = [ODD_NAMES[at : at + 8] for at in range(0, len(ODD_NAMES), 8)]
"""Names of columns, as many as a table can be partitioned by: first those that folders have as they
are, last those that need column mapping."""
ORDINARY = (
    *((Mode.CURRENT, name) for name in ("plain", "parts", "clusters")),
    *((Mode.HISTORY, name) for name in ("plain", "parts")),
)
ORDERS = "public.orders"
SCHEMA = schema_of(ORDERS, {"id": "int64", "status": "string", "note": "string"}, ["id"])
PARTITIONED = TableLayout(partition_by=("status",))
CLUSTERED = TableLayout(cluster_by=("status", "id"))
ORDINARY_MERGES = (0, 3)
"""The manifests after which there is a merge, where not after each of them."""
EVERY = tuple((mode, name) for mode in list(Mode)[:3] for name in LAYOUTS)


def named(mode: Mode, layout: str) -> str:
    return f"public.{mode.value}_{layout}"


def settings_of(variants: Sequence[tuple[Mode, str]]) -> dict[str, Any]:
    return {named(mode, name): {"mode": mode.value, **LAYOUTS[name]} for mode, name in variants}


def manifests() -> Iterator[tuple[list[Any], bool]]:
    """The changes of each manifest, as (operation, values, key before), and whether a dump of the
    whole table ends there."""

    def row(key: int, region: str | None, note: str = "new", area: str = "a") -> dict[str, Any]:
        day = None if key % 3 == 0 else date(2024, 1, 1 + key % 2)
        return {"area": area, "id": key, "region": region, "day": day, "note": note}

    yield [("c", row(at, text), None) for at, text in enumerate(HOSTILE)], False
    yield (
        [
            # To another partition and back, from and to NULL, and by the key.
            ("u", row(0, "ok"), None),
            ("u", row(1, None), None),
            ("u", row(9, "..", "was null"), None),
            ("u", row(2, "ok", area="b"), {"area": "a", "id": 2}),
            ("d", {"area": "a", "id": 3}, None),
            ("c", row(50, "later", area="b/c"), None),
            ("c", row(51, "later"), None),
            ("d", {"area": "a", "id": 51}, None),
            ("u", row(0, "a/b=c", "back"), None),
        ],
        False,
    )
    yield (
        [
            ("c", row(3, "ok", "again"), None),
            ("u", row(50, "later", "moved", area="a"), {"area": "b/c", "id": 50}),
        ],
        False,
    )
    # A dump that lacks the rows above 5 of area a, and a truncate.
    yield [("r", row(at, "ok", "dumped"), None) for at in range(5)], True
    yield [("t", {}, None), ("c", row(7, None, "after"), None)], False


def tell(history: History, tables: Sequence[str], changes: list[Any], low: int) -> None:
    """Commit one manifest with the same changes of all ``tables``."""
    events: list[Event] = []
    for table in tables:
        for number, (op, values, before) in enumerate(changes):
            at = datetime(2024, 1, 1, second=number, tzinfo=UTC)
            row = Row(table, op, values, before=before, at=at)
            events.append(Emptied(table) if op == "t" else row)
    history.commit(*events, deletes_before=[(table, low) for table in tables if low])


def rows(history: History, spark: SparkSession, table: str) -> list[dict[str, Any]]:
    """The table's rows without their sequences, which differ between the tables of one chain."""
    found = [
        {name: value for name, value in row.items() if "seq" not in name}
        for row in history.rows(spark, table)
    ]
    return sorted(found, key=repr)


def compare(history: History, spark: SparkSession, variants: Sequence[tuple[Mode, str]]) -> None:
    expected = {
        mode: rows(history, spark, named(mode, name)) for mode, name in variants if name == "plain"
    }
    for mode, name in variants:
        assert rows(history, spark, named(mode, name)) == expected[mode], (mode, name)


@pytest.mark.parametrize(
    "variants", [ORDINARY, pytest.param(EVERY, marks=pytest.mark.long)], ids=["some", "every"]
)
def test_a_layout_changes_no_row(
    tmp_path: Path, spark: SparkSession, variants: Sequence[tuple[Mode, str]]
) -> None:
    history = History(tmp_path, tables=settings_of(variants))
    tables = [named(mode, name) for mode, name in variants]
    history.commit(*(Shaped(schema_of(table, COLUMNS, KEY)) for table in tables))
    for at, (changes, ends_dump) in enumerate(manifests()):
        tell(history, tables, changes, history.last_seq if ends_dump else 0)
        if variants is ORDINARY and at not in ORDINARY_MERGES:
            continue
        receipt = history.merge(spark)
        assert {one.outcome for one in receipt.tables} == {Outcome.APPLIED}, [
            (one.table, one.error) for one in receipt.tables
        ]
        compare(history, spark, variants)
    for mode, name in variants:
        made = DeltaTable(history.target(named(mode, name)).removeprefix("file://"))
        read = (
            QueryBuilder().register("t", made).execute("SELECT area, id, region, day, note FROM t")
        )
        by_others = [tuple(row.values()) for row in pa.table(read.read_all()).to_pylist()]
        by_spark = [
            tuple(row[n] for n in COLUMNS) for row in rows(history, spark, named(mode, name))
        ]
        assert sorted(by_others, key=repr) == sorted(by_spark, key=repr), (mode, name)
        layout = TableLayout.of_properties(made.metadata().configuration)
        assert list(layout.columns) == [
            *LAYOUTS[name].get("partition_by", ()),
            *LAYOUTS[name].get("cluster_by", ()),
        ]
        assert made.metadata().partition_columns == list(layout.partition_by)
        features = made.protocol().writer_features or ()
        assert ("clustering" in features) is bool(layout.cluster_by)


@pytest.mark.parametrize(
    "names",
    [ODD[0], ODD[-1], *(pytest.param(names, marks=pytest.mark.long) for names in ODD[1:-1])],
    ids=range(len(ODD)),
)
def test_partition_columns_of_every_name(
    tmp_path: Path, spark: SparkSession, names: Sequence[str]
) -> None:
    """With values of every kind, one of them of the key; and files are put together within them."""
    plain, wide = "public.plain", "public.wide"
    history = History(tmp_path, tables={wide: {"partition_by": list(names)}})
    columns = {"id": "int64", **dict.fromkeys(names, "string"), "note": "string"}
    # The longest name takes 180 of the 255 bytes of a folder's name.
    texts = [text[:70] for text in HOSTILE if text is not None]
    at = datetime(2024, 1, 1, tzinfo=UTC)

    def row(op: str, key: int, turn: int, before: int | None = None) -> list[Row]:
        def held(by: int) -> dict[str, Any]:
            return {name: texts[(key + n + by) % len(texts)] for n, name in enumerate(names)}

        was = None if before is None else {"id": key, names[0]: held(before)[names[0]]}
        values = {"id": key, **held(turn), "note": op}
        return [Row(table, op, values, before=was, at=at) for table in (plain, wide)]

    for table in (plain, wide):
        history.commit(Shaped(schema_of(table, columns, ["id", names[0]])))
    history.commit(*row("c", 1, 0), *row("c", 2, 0), *row("c", 3, 0))
    history.merge(spark)
    # In place, to other partitions by the key and by the others, and away.
    history.commit(*row("u", 1, 0), *row("u", 2, 1, before=0), *row("d", 3, 0), *row("c", 4, 0))
    receipts = history.merge(spark).tables
    assert {(one.outcome, one.error) for one in receipts} == {(Outcome.APPLIED, None)}
    history.commit(*row("u", 4, 0), *row("c", 5, 0), *row("c", 105, 0))
    assert {one.outcome for one in history.merge(spark).tables} == {Outcome.APPLIED}
    assert rows(history, spark, wide) == rows(history, spark, plain)
    files = open_target(spark.newSession(), history.target(wide)).files
    files.rewrite(THRESHOLDS, REWRITE)
    assert files.measure(THRESHOLDS).small == 0
    assert rows(history, spark, wide) == rows(history, spark, plain)
    made = DeltaTable(history.target(wide).removeprefix("file://"))
    assert made.metadata().partition_columns == list(names)


def test_texts_of_every_kind_are_partitions_in_s3(
    tmp_path: Path, s3: S3Server, spark_on_s3: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders are names of objects there: escaped once more, or not, by each client in its way."""
    texts = [*HOSTILE, " ", "a b", "+", "a+b", ".", "~", "%", "%252F", "?x#y&z", "\\", "é/é"]
    with_vectors, without = "public.with", "public.without"
    tables = {
        with_vectors: {"partition_by": ["status"]},
        without: {"partition_by": ["status"], "deletion_vectors": False},
    }
    history = History(tmp_path, tables=tables, place=place_in(s3))

    def merge(*changes: Row) -> None:
        events = [replace(one, table=table) for table in tables for one in changes]
        history.commit(*events)
        found = history.merge(spark_on_s3).tables
        assert {(one.outcome, one.error) for one in found} == {(Outcome.APPLIED, None)}

    for table in tables:
        history.commit(Shaped(msgspec.structs.replace(SCHEMA, table=table)))
    # Two rows in each partition, of which one stays where it is; all others move by one.
    twice = [*enumerate(texts), *enumerate(texts, start=len(texts))]
    merge(*(order("c", key, text) for key, text in twice))
    moved = dict(enumerate(texts[1:] + texts[:1]))
    merge(*(order("u", key, text, "moved") for key, text in moved.items()))
    expected = {
        **{key: (text, "") for key, text in twice},
        **{key: (text, "moved") for key, text in moved.items()},
    }
    options = dict(storage_options(history.settings.warehouse_storage))
    monkeypatch.setattr("tideline_spark.formats.file_figures.VACUUM_HOURS_MIN", 0)
    for table in tables:
        url = history.target(table)
        files = open_target(spark_on_s3.newSession(), url).files
        for _ in range(2):
            assert by_spark(history, spark_on_s3, table) == expected
            made = DeltaTable(url, storage_options=options)
            assert by_sql(made) == expected, "deltalake, by SQL"
            for text in texts:
                wanted = {key: one for key, one in expected.items() if one[0] == text}
                assert by_sql(made, text) == wanted, "with a filter"
            if table == without:
                rows = made.to_pyarrow_table().to_pylist()
                assert by_key(rows) == expected, "deltalake, by pyarrow"
            # Once more when all that is live lies in new files, and no old one is left.
            files.rewrite(THRESHOLDS, REWRITE)
            files.vacuum(0)
        _, _, folder = url.partition("/warehouse/")
        kept = open_store(history.settings.warehouse_store()).list(folder)
        kept = [key for key in kept if "/status=" in key and key.endswith(".parquet")]
        assert len({key.rpartition("/")[0] for key in kept}) == len(texts)
        assert len(kept) == len(DeltaTable(url, storage_options=options).file_uris())


def by_key(rows: Iterable[Mapping[str, Any]]) -> dict[int, tuple[str | None, str]]:
    return {row["id"]: (row["status"], row["note"]) for row in rows}


def by_spark(
    history: History, spark: SparkSession, table: str
) -> dict[int, tuple[str | None, str]]:
    return by_key(history.rows(spark, table))


def by_sql(made: DeltaTable, *status: str | None) -> dict[int, tuple[str | None, str]]:
    """By deltalake; those in one partition alone, if one is given."""
    where = ""
    for text in status:
        literal = "'" + str(text).replace("'", "''") + "'"
        where = "WHERE status IS NULL" if text is None else f"WHERE status = {literal}"
    found = QueryBuilder().register("t", made).execute(f"SELECT id, status, note FROM t {where}")
    return by_key(pa.table(found.read_all()).to_pylist())


def choose(history: History, **settings: Any) -> None:
    entry = TableSettings(**settings)
    history.settings = history.settings.model_copy(update={"tables": {ORDERS: entry}})


def order(op: str, key: int, status: str | None = None, note: str = "") -> Row:
    return Row(ORDERS, op, {"id": key, "status": status, "note": note})


def test_a_text_that_no_folder_keeps_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    """Each of them, in a table of its own."""
    texts = {f"public.t{at}": text for at, text in enumerate(NOT_KEPT)}
    history = History(tmp_path, tables={table: {"partition_by": ["status"]} for table in texts})
    for table, text in texts.items():
        given = [{"id": 1, "status": "new"}, {"id": 2, "status": text}]
        shape = Shaped(schema_of(table, {"id": "int64", "status": "string"}, ["id"]))
        history.commit(shape, *(Row(table, "c", one) for one in given))
    receipts = history.merge(spark).tables
    assert [one.table for one in receipts] == list(texts)
    for receipt in receipts:
        assert (receipt.outcome, receipt.error_kind) == (Outcome.FAILED, "Misconfigured"), receipt
        assert "in a partition column" in str(receipt.error)
        assert "partition_by" in str(receipt.hint)
    history.settings = history.settings.model_copy(update={"tables": {}})
    history.merge(spark)
    for table, text in texts.items():
        assert [row["status"] for row in history.rows(spark, table)] == ["new", text]


def test_rebuilds_give_a_table_its_layout(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(tmp_path)
    rebuilder = Rebuilder(history, spark)
    history.commit(Shaped(SCHEMA), *(order("c", key, f"s{key % 3}") for key in range(9)))
    history.merge(spark)
    for number, layout in enumerate((PARTITIONED, CLUSTERED)):
        choose(history, **msgspec.to_builtins(layout))
        history.commit(order("u", number, "s9"), order("d", 5 + number))
        show_plan(history.settings, [], as_json=False)
        show_status(history.settings, as_json=False)
        noted = f"the settings say {layout}: `tideline rebuild {ORDERS}` applies it"
        assert capsys.readouterr().out.count(noted) == 2
        (table,) = history.plan().tables
        assert table.layout != layout, "the table that is there stays as it is"
        history.merge(spark)
        expected = history.rows(spark, ORDERS)
        _, reported = rebuilder.all()
        assert reported[-1] == "applied", reported
        assert history.rows(spark, ORDERS) == expected
        (status,) = read_status(history.settings).tables
        assert (status.layout, status.layout_wanted) == (layout, None)
    # OPTIMIZE clusters, and changes no row.
    files = open_target(spark.newSession(), history.target(ORDERS)).files
    files.rewrite(THRESHOLDS, REWRITE)
    assert history.rows(spark, ORDERS) == expected
    assert files.measure(THRESHOLDS).small == 0
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{history.target(ORDERS)}`").first()
    assert detail is not None and detail["clusteringColumns"] == list(CLUSTERED.cluster_by)
    for key in (3, 4):
        history.commit(order("u", key, "s9", "again"))
        assert history.merge(spark).tables[0].external_changes == ()
    # The next one clusters these two, and with them all that it has clustered before.
    measured = files.measure(THRESHOLDS)
    assert (measured.files, measured.small, measured.small_bytes) == (3, 2, measured.bytes)
    choose(history, partition_by=["status"])
    with pytest.raises(Misconfigured, match="is or was clustered cannot be partitioned"):
        rebuilder.all()
    choose(history)
    expected = history.rows(spark, ORDERS)
    _, reported = rebuilder.all()
    assert (reported[-1], history.rows(spark, ORDERS)) == ("applied", expected)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{history.target(ORDERS)}`").first()
    assert detail is not None and not detail["clusteringColumns"]


@pytest.mark.long
def test_a_column_of_the_layout_stops_the_table_before_it_goes(
    tmp_path: Path, spark: SparkSession
) -> None:
    history = History(tmp_path, tables={ORDERS: {"partition_by": ["status"]}})
    history.commit(Shaped(SCHEMA), *(order("c", key, "new") for key in range(3)))
    history.merge(spark)
    less = schema_of(ORDERS, {"id": "int64", "note": "string"}, ["id"])
    history.commit(Shaped(less, (ColumnStep(StepKind.DROP, "status"),)))
    history.commit(Row(ORDERS, "c", {"id": 9, "note": "without"}))
    plan = history.plan()
    assert not plan.tables
    assert (
        "'status' was dropped, and the warehouse's table is partitioned by 'status'"
        in (plan.delayed[ORDERS])
    )
    (status,) = read_status(history.settings).tables
    assert (status.state.value, status.up_to_date) == ("schema-blocked", False)
    assert "tideline rebuild" in str(status.hint)
    choose(history, cluster_by=["id"])
    _, reported = Rebuilder(history, spark).all()
    assert reported[-1] == "applied", reported
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED, receipt.error
    found = history.rows(spark, ORDERS)
    assert [(row["id"], row["status"]) for row in found] == [(key, None) for key in (0, 1, 2, 9)]


@pytest.mark.long
def test_columns_change_as_in_a_plain_table(tmp_path: Path, spark: SparkSession) -> None:
    """All but those of the layout; and a clustering column's type may grow."""
    layouts: Mapping[str, Mapping[str, Any]] = {
        "public.plain": {},
        "public.parts": {"partition_by": ["status"]},
        "public.clusters": {"cluster_by": ["n", "status"]},
    }
    at = datetime(2024, 1, 1, tzinfo=UTC)
    history = History(tmp_path, tables=layouts)
    columns = {"id": "int64", "n": "int32", "status": "string", "note": "string", "gone": "date"}
    after = {"id": "int64", "n": "int64", "status": "string", "memo": "string", "more": "boolean"}
    steps = (
        ColumnStep(StepKind.WIDEN, "n", type="int64"),
        ColumnStep(StepKind.RENAME, "memo", was="note"),
        ColumnStep(StepKind.DROP, "gone"),
        ColumnStep(StepKind.ADD, "more", type="boolean", default="true"),
    )
    for table in layouts:
        history.commit(Shaped(schema_of(table, columns, ["id"])))
        values = [{"id": key, "n": key, "status": f"s{key % 2}", "note": "n"} for key in range(6)]
        history.commit(*(Row(table, "c", one, at=at) for one in values))
    history.merge(spark)
    for table in layouts:
        history.commit(Shaped(schema_of(table, after, ["id"]), steps))
        moved = {"id": 1, "n": 2**40, "status": "s0", "memo": "moved"}
        history.commit(Row(table, "u", moved, at=at), Row(table, "d", {"id": 2}, at=at))
    receipts = history.merge(spark).tables
    assert {(one.outcome, one.error) for one in receipts} == {(Outcome.APPLIED, None)}
    expected = rows(history, spark, "public.plain")
    assert len(expected) == 5 and {row["more"] for row in expected} == {True, None}
    for table in layouts:
        assert rows(history, spark, table) == expected, table
        files = open_target(spark.newSession(), history.target(table)).files
        files.rewrite(THRESHOLDS, REWRITE)
        assert rows(history, spark, table) == expected, table


@pytest.mark.parametrize(
    "mode", [Mode.CURRENT, pytest.param(Mode.SOFT_DELETES, marks=pytest.mark.long), Mode.HISTORY]
)
def test_a_small_merge_reads_only_the_partitions_of_its_rows(
    tmp_path: Path, spark: SparkSession, mode: Mode
) -> None:
    """Where a partition column is part of the key: files of others are not even there."""
    table = "public.keyed"
    history = History(tmp_path, tables={table: {"partition_by": ["area"], "mode": mode.value}})
    history.commit(Shaped(schema_of(table, COLUMNS, KEY)))
    areas = ("it's \\ ${x}", "b", "c")
    values = [{"area": area, "id": key} for area in areas for key in (1, 2)]
    history.commit(*(Row(table, "c", one) for one in values))
    history.merge(spark)
    folder = Path(history.target(table).removeprefix("file://"))
    (away,) = folder.glob("area=c/*.parquet")
    away.rename(tmp_path / "away")
    changed = [
        Row(table, "u", {"area": areas[0], "id": 1, "note": "kept"}),
        Row(table, "u", {"area": "b", "id": 9}, before={"area": areas[0], "id": 2}),
        Row(table, "d", {"area": "b", "id": 2}),
    ]
    history.commit(*changed)
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.APPLIED, receipt.error
    (tmp_path / "away").rename(away)
    live = [
        row
        for row in history.rows(spark, table)
        if row.get("_tl_current", True) and not row.get("_tl_deleted")
    ]
    found = [(row["area"], row["id"], row["note"]) for row in live]
    expected = [(areas[0], 1, "kept"), ("b", 1, None), ("b", 9, None), ("c", 1, None)]
    assert sorted(found, key=repr) == sorted([*expected, ("c", 2, None)], key=repr)
