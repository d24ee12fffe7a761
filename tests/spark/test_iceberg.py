"""What Iceberg tables do otherwise than Delta tables, and the whole line on them: histories that
are drawn, races, a rollback, both versions of the format, both formats in one plan."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.spark.orders import ORDERS, SCHEMA, applied, content, merged_at_once, order, run
from tests.spark.test_parity import compare
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.contract.target_types import target_type
from tideline.contract.types import Kind, LogicalType, parse_type
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.client import find_table, remove_table
from tideline.warehouse.iceberg.names import identifier_of
from tideline.warehouse.state import read_target
from tideline_console.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tideline_spark.formats.iceberg.table import IcebergTarget

T = "public.t"


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Warehouse:
    """A warehouse of Iceberg tables that the run's Spark reaches."""
    made = with_catalog(Warehouse(url=tmp_path.as_uri()), tmp_path / "catalog.db")
    use_catalog(spark, made)
    return made


@pytest.fixture
def history(tmp_path: Path, place: Warehouse) -> History:
    made = History(tmp_path, place=place)
    made.commit(Shaped(SCHEMA))
    return made


def target_of(history: History, spark: SparkSession, table: str = ORDERS) -> IcebergTarget:
    from tideline_spark.formats.iceberg.table import IcebergTarget

    return IcebergTarget(spark.newSession(), history.target(table))


def sql_name(history: History, table: str = ORDERS) -> str:
    return ".".join(f"`{one}`" for one in ("tideline", *identifier_of(history.target(table))))


def stored(history: History, table: str = ORDERS) -> Any:
    """Pyiceberg's own table."""
    found = find_table(history.settings.warehouse, identifier_of(history.target(table)))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mode", "seed", "ignored"),
    [
        (Mode.CURRENT, 1, frozenset[StepKind]()),
        (Mode.HISTORY, 5, frozenset({StepKind.DROP})),
    ],
)
def test_targets_hold_what_the_model_says(
    spark: SparkSession, tmp_path: Path, place: Warehouse, mode: Mode, seed: int, ignored: Any
) -> None:
    compare(spark, tmp_path, mode, seed, ignored, drop_columns=True, place=place)


def test_two_merges_of_one_table_at_once(history: History, spark: SparkSession) -> None:
    """The namespace, the table and the rows are made once."""
    for expected, row in (
        ({1: ("new", None)}, order("c", 1, "new")),
        ({1: ("paid", None)}, order("u", 1, "paid")),
        ({1: ("paid", None), 2: ("new", None)}, order("c", 2, "new")),
    ):
        history.commit(row)
        found = merged_at_once(history, spark)
        outcomes = sorted(receipt.outcome.value for receipt in found)
        assert outcomes == ["already_applied", "applied"], [one.error for one in found]
        assert content(history, spark) == expected


def test_a_run_that_is_killed_behind_its_commit_is_not_run_again(
    history: History, spark: SparkSession
) -> None:
    from tideline_spark.merge import run_plan

    class Killed(BaseException):
        """As a signal ends the run."""

    def dies(point: str) -> None:
        if point == "after-commit":
            raise Killed

    history.commit(order("c", 1, "new"))
    applied(history, spark)
    history.commit(order("c", 2, "new"))
    plan = history.plan()
    with pytest.raises(Killed):
        run_plan(spark, plan, on_point=dies)
    version = target_of(history, spark).newest()
    assert run(spark, plan).outcome is Outcome.ALREADY_APPLIED
    assert target_of(history, spark).newest() == version
    assert set(content(history, spark)) == {1, 2}


def test_a_rollback_takes_the_number_back(history: History, spark: SparkSession) -> None:
    """The next plan goes on from there: nothing is lost, and no dump is needed."""
    history.commit(order("c", 1, "new"))
    first = applied(history, spark)
    before = stored(history).current_snapshot().snapshot_id
    history.commit(order("u", 1, "paid"), order("c", 2, "new"))
    applied(history, spark)
    name = sql_name(history).removeprefix("`tideline`.").replace("`", "")
    spark.newSession().sql(
        f"CALL tideline.system.rollback_to_snapshot('{name}', {before})"
    ).collect()
    app = history.plan().tables[0].app_id
    state = read_target(history.target(ORDERS), app, history.settings.warehouse)
    assert (state.applied, state.went_back) == (first.applied_manifest, False)
    applied(history, spark)
    assert content(history, spark) == {1: ("paid", None), 2: ("new", None)}


@pytest.mark.parametrize(("version", "suffix"), [(3, "puffin"), (2, "parquet")])
def test_deleted_rows_are_marked_in_either_version(
    history: History, spark: SparkSession, version: int, suffix: str
) -> None:
    spark._jsc.sc().conf().set("spark.tideline.iceberg.format-version", str(version))
    history.commit(*(order("c", key, "new") for key in range(1, 9)))
    applied(history, spark)
    history.commit(order("d", 1), order("u", 2, "paid"))
    applied(history, spark)
    assert stored(history).metadata.format_version == version
    files = target_of(history, spark)._session.table(f"{sql_name(history)}.delete_files").collect()
    assert {row["file_path"].rpartition(".")[2] for row in files} == {suffix}
    assert set(content(history, spark)) == set(range(2, 9))


def test_a_table_without_deletion_vectors_is_written_anew(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    history = History(tmp_path, tables={ORDERS: {"deletion_vectors": False}}, place=place)
    history.commit(Shaped(SCHEMA))
    history.commit(order("c", 1, "new"), order("c", 2, "new"))
    applied(history, spark)
    history.commit(order("d", 1))
    applied(history, spark)
    found = target_of(history, spark)
    assert found._session.table(f"{sql_name(history)}.delete_files").count() == 0
    assert set(content(history, spark)) == {2}


def test_types_that_iceberg_cannot_promote_keep_their_values(
    history: History, spark: SparkSession
) -> None:
    """By another writing of the rows, which is ours and keeps what is applied."""
    small = {"id": "int32", "n": "int32", "d": "decimal(10,2)", "s": "int16", "f": "float32"}
    wide = {"id": "int32", "n": "decimal(20,0)", "d": "decimal(14,4)", "s": "int32", "f": "float64"}
    history.commit(Shaped(schema_of(T, small, ["id"])))
    values = {"id": 1, "n": 7, "d": Decimal("1.25"), "s": 3, "f": 0.5}
    history.commit(Row(T, "c", values))
    applied_of(history, spark)
    steps = tuple(
        ColumnStep(StepKind.WIDEN, name, type=kind) for name, kind in wide.items() if name != "id"
    )
    history.commit(
        Shaped(schema_of(T, wide, ["id"]), steps),
        Row(T, "c", {**values, "id": 2, "n": Decimal(7), "d": Decimal("1.2500")}),
    )
    receipt = applied_of(history, spark)
    assert receipt.external_changes == ()
    one, two = history.rows(spark, T)
    assert {name: str(value) for name, value in one.items() if name in ("n", "d", "s", "f")} == {
        "n": "7",
        "d": "1.2500",
        "s": "3",
        "f": "0.5",
    }
    assert {**one, "id": 2, "_tl_seq": 0, "_tl_ts": 0} == {**two, "_tl_seq": 0, "_tl_ts": 0}
    assert history.plan().nothing_to_do


def test_a_removed_table_leaves_nothing_in_the_warehouse(
    history: History, spark: SparkSession
) -> None:
    """Not even Hadoop's checksums, which no metadata names."""
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    folder = Path(stored(history).location().removeprefix("file://"))
    assert list(folder.rglob(".*.crc"))
    remove_table(history.settings.warehouse, identifier_of(history.target(ORDERS)))
    assert not folder.exists() and not folder.parent.parent.exists()


def test_columns_have_the_types_that_an_assessment_names(
    history: History, spark: SparkSession
) -> None:
    kinds = [str(LogicalType(kind)) for kind in Kind if kind is not Kind.DECIMAL]
    columns = {f"c_{at}": kind for at, kind in enumerate((*kinds, "decimal(12,3)"))}
    history.commit(Shaped(schema_of(T, {"id": "int32", **columns}, ["id"])))
    history.commit(Row(T, "c", {"id": 1, **dict.fromkeys(columns)}))
    applied_of(history, spark)
    made = {one.name: one.dataType for one in spark.newSession().table(sql_name(history, T)).schema}
    for name, kind in columns.items():
        assert made[name].simpleString() == target_type(parse_type(kind), "iceberg"), kind


def applied_of(history: History, spark: SparkSession) -> Any:
    receipts = {one.table: one for one in history.merge(spark).tables}
    assert receipts[T].outcome is Outcome.APPLIED, receipts[T].error
    return receipts[T]


def test_one_plan_has_tables_of_both_formats(
    tmp_path: Path, place: Warehouse, spark: SparkSession
) -> None:
    history = History(tmp_path, tables={T: {"format": "delta"}}, place=place)
    history.commit(Shaped(SCHEMA), Shaped(schema_of(T, {"id": "int32"}, ["id"])))
    history.commit(order("c", 1, "new"), Row(T, "c", {"id": 5}))
    plan = history.plan()
    schemes = {table.table: table.target.partition("://")[0] for table in plan.tables}
    assert schemes == {ORDERS: "iceberg", T: "file"}
    from tideline_spark.merge import run_plan

    assert {one.outcome for one in run_plan(spark, plan).tables} == {Outcome.APPLIED}
    assert (set(content(history, spark)), [row["id"] for row in history.rows(spark, T)]) == (
        {1},
        [5],
    )
    assert history.plan().nothing_to_do


def test_rows_are_those_that_other_readers_see(history: History, spark: SparkSession) -> None:
    """Pyiceberg applies the deletion vectors of the same table."""
    history.commit(*(order("c", key, "new", f"n{key}") for key in range(1, 50)))
    applied(history, spark)
    history.commit(order("d", 3), order("u", 4, "paid", "x"), order("d", 40))
    applied(history, spark)
    rows = stored(history).scan().to_arrow().to_pylist()
    assert {row["id"]: (row["status"], row["note"]) for row in rows} == content(history, spark)


@pytest.mark.parametrize("vectors", [True, False])
def test_status_asks_for_no_rebuild_of_a_table_that_is_as_it_should_be(
    tmp_path: Path, place: Warehouse, spark: SparkSession, vectors: bool
) -> None:
    """In version 2, too, whose deleted rows are in other files."""
    spark._jsc.sc().conf().set("spark.tideline.iceberg.format-version", "2")
    history = History(tmp_path, tables={ORDERS: {"deletion_vectors": vectors}}, place=place)
    history.commit(Shaped(SCHEMA))
    history.commit(order("c", 1, "new"))
    applied(history, spark)
    (table,) = read_status(history.settings).tables
    assert (table.deletion_vectors, table.deletion_vectors_wanted) == (vectors, None)
    assert (table.state.value, table.reason) == ("active", None)
