"""Iceberg's catalogs on real servers: Spark commits, pyiceberg plans, two merges at once, columns
that change, a rollback, connections that are given back, and no secret that shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.iceberg import use_catalog
from tests.fixtures.iceberg_catalogs import in_postgres
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.services import Database
from tests.spark.orders import ORDERS, SCHEMA, applied, content, merged_at_once, order
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.client import find_table
from tideline.warehouse.iceberg.names import identifier_of
from tideline.warehouse.state import read_target
from tideline_console.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDE = {"id": "int64", "state": "string", "n": "int64"}
NARROW = {"id": "int64", "status": "string", "n": "int32"}
T = "public.t"


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession, catalog_server_place: Warehouse) -> History:
    use_catalog(spark, catalog_server_place)
    made = History(tmp_path, place=catalog_server_place)
    made.commit(Shaped(SCHEMA))
    return made


def stored(history: History, table: str = ORDERS) -> Any:
    found = find_table(history.settings.warehouse_storage, identifier_of(history.target(table)))
    assert found is not None
    return found


def by_pyiceberg(history: History) -> dict[int, tuple[str | None, str | None]]:
    rows = stored(history).scan().to_arrow().to_pylist()
    return {row["id"]: (row["status"], row["note"]) for row in rows}


def test_a_table_is_made_merged_and_planned(history: History, spark: SparkSession) -> None:
    history.commit(*(order("c", key, "new", f"n{key}") for key in range(1, 20)))
    receipt = applied(history, spark)
    assert receipt.external_changes == ()
    history.commit(order("d", 3), order("u", 4, "paid", "x"))
    applied(history, spark)
    expected = {key: ("new", f"n{key}") for key in range(1, 20) if key != 3} | {4: ("paid", "x")}
    assert content(history, spark) == by_pyiceberg(history) == expected
    assert stored(history).metadata.format_version == 3
    assert history.plan().nothing_to_do
    (table,) = read_status(history.settings).tables
    assert (table.state.value, table.reason, table.up_to_date) == ("active", None, True)


def test_of_two_merges_at_once_one_finds_it_done(history: History, spark: SparkSession) -> None:
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
        assert content(history, spark) == by_pyiceberg(history) == expected


def test_columns_change_in_one_commit(history: History, spark: SparkSession) -> None:
    history.commit(Shaped(schema_of(T, NARROW, ["id"])))
    history.commit(Row(T, "c", {"id": 1, "status": "new", "n": 1}))
    history.merge(spark)
    steps = (
        ColumnStep(StepKind.RENAME, "state", was="status"),
        ColumnStep(StepKind.WIDEN, "n", type="int64"),
    )
    history.commit(Shaped(schema_of(T, WIDE, ["id"]), steps))
    history.commit(Row(T, "c", {"id": 2, "state": "paid", "n": 2**40}))
    receipts = {one.table: one for one in history.merge(spark).tables}
    assert receipts[T].outcome is Outcome.APPLIED, receipts[T].error
    expected = [(1, "new", 1), (2, "paid", 2**40)]
    rows = history.rows(spark, T)
    assert [(row["id"], row["state"], row["n"]) for row in rows] == expected
    read = stored(history, T).scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["state"], row["n"]) for row in read) == expected
    assert history.plan().nothing_to_do


def test_a_rollback_takes_the_number_back(history: History, spark: SparkSession) -> None:
    history.commit(order("c", 1, "new"))
    first = applied(history, spark)
    before = stored(history).current_snapshot().snapshot_id
    history.commit(order("u", 1, "paid"), order("c", 2, "new"))
    applied(history, spark)
    name = ".".join(identifier_of(history.target(ORDERS)))
    spark.newSession().sql(
        f"CALL tideline.system.rollback_to_snapshot('{name}', {before})"
    ).collect()
    app = history.plan().tables[0].app_id
    state = read_target(history.target(ORDERS), app, history.settings.warehouse_storage)
    assert (state.applied, state.went_back) == (first.applied_manifest, False)
    applied(history, spark)
    assert content(history, spark) == {1: ("paid", None), 2: ("new", None)}


def test_a_database_gets_its_connections_back(
    tmp_path: Path, spark: SparkSession, database: Database
) -> None:
    """Each merge of a table has a session, and so a client of the catalog, of its own."""
    place = in_postgres(tmp_path, database)
    use_catalog(spark, place)
    history = History(tmp_path, place=place)
    history.commit(Shaped(SCHEMA))

    def connections() -> int:
        [(found,)] = database.rows(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%JDBC%'"
            f" AND datname = '{database.name}'"
        )
        return int(found)

    most = 0
    for key in range(8):
        history.commit(order("c", key, "new"))
        applied(history, spark)
        most = max(most, connections())
    # Of the last sessions: PySpark itself keeps the newest one.
    assert 1 <= most <= 3
