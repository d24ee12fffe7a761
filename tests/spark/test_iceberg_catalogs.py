"""Iceberg's catalogs on real servers: Spark commits, pyiceberg plans, two merges at once, columns
that change, a rollback, connections that are given back, and no secret that shows."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from devtools.services.s3 import S3Server
from tests.fixtures.iceberg import use_catalog
from tests.fixtures.iceberg_catalogs import TABLE_BUCKET, at_rest, in_postgres, in_table_bucket
from tests.fixtures.object_storage import reach
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tests.fixtures.services import Database
from tests.spark.orders import ORDERS, SCHEMA, applied, content, merged_at_once, order
from tideline.contract.errors import Misconfigured
from tideline.contract.receipt import Outcome
from tideline.contract.steps import ColumnStep, StepKind
from tideline.settings import Settings, Warehouse, make_settings
from tideline.store.objects import open_store
from tideline.warehouse.iceberg.client import find_table, open_catalog
from tideline.warehouse.iceberg.names import identifier_of
from tideline.warehouse.iceberg.probe import probe_catalog
from tideline.warehouse.state import read_target
from tideline_console.status import read_status
from tideline_spark.failures import SparkFailure, is_conflict
from tideline_spark.formats.state import TableWords

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDE = {"id": "int64", "state": "string", "n": "int64"}
NARROW = {"id": "int64", "status": "string", "n": "int32"}
T = "public.t"


@pytest.fixture
def history(tmp_path: Path, spark: SparkSession, catalog_server_place: Warehouse) -> History:
    place = catalog_server_place
    use_catalog(spark, place)
    if place.in_s3:
        reach(spark, place)
    made = History(tmp_path)
    iceberg = place.iceberg.model_dump(exclude_unset=True)
    warehouse = {"url": place.url, **place.access(), "format": "iceberg", "iceberg": iceberg}
    made.settings = with_warehouse(made.settings, warehouse)
    made.commit(Shaped(SCHEMA))
    return made


def with_warehouse(settings: Settings, warehouse: Mapping[str, Any]) -> Settings:
    """The settings with another warehouse, and the store in its folder."""
    return make_settings(
        {
            "pipeline": settings.pipeline,
            "source": {"url": settings.source.url.get_secret_value()},
            "store": {"url": settings.store.url},
            "warehouse": dict(warehouse),
        }
    )


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
    wanted = history.settings.warehouse.iceberg.format_version
    assert stored(history).metadata.format_version == wanted
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


def test_a_null_that_came_meanwhile_keeps_a_column_optional(
    history: History, spark: SparkSession
) -> None:
    from tideline_spark.formats.registry import open_target

    history.commit(order("c", 1, "new", "n1"))
    applied(history, spark)
    target = open_target(spark.newSession(), history.target(ORDERS))

    def firm_meanwhile(now: TableWords) -> TableWords:
        assert target.description.without_null(["note"]) == {"note"}
        history.commit(order("c", 2, "new", None))
        applied(history, spark)
        return replace(now, firm=now.firm | {"note"})

    with pytest.raises(SparkFailure) as raced:
        target.description.rewrite(firm_meanwhile)
    assert is_conflict(raced.value)
    assert "note" not in target.description.words().firm
    assert target.description.rewrite(lambda now: replace(now, firm=now.firm | {"status"}))
    assert "status" in target.description.words().firm
    assert history.plan().nothing_to_do
    history.commit(order("c", 3, "new"))
    assert applied(history, spark).external_changes == ()


def test_a_database_gets_its_connections_back(
    tmp_path: Path, spark: SparkSession, database: Database
) -> None:
    """Each merge of a table has a session, and so a client of the catalog, of its own."""
    place = in_postgres(tmp_path, database)
    use_catalog(spark, place)
    history = History(tmp_path, place=place)
    history.commit(Shaped(SCHEMA))

    def connections() -> int:
        rows = database.rows("SELECT datname, application_name FROM pg_stat_activity")
        return sum(name == database.name and "JDBC" in client for name, client in rows)

    most = 0
    for key in range(8):
        history.commit(order("c", key, "new"))
        applied(history, spark)
        most = max(most, connections())
    # Of the last sessions: PySpark itself keeps the newest one.
    assert 1 <= most <= 3


def test_a_table_bucket_refuses_deletion_vectors(s3_tables: S3Server) -> None:
    """So that it has tables of version 2, or copy-on-write ones, alone."""
    place = in_table_bucket(s3_tables)
    probe_catalog(place)
    catalog = open_catalog(place)
    namespace = place.iceberg.namespace
    catalog.create_namespace(namespace)
    catalog.create_table((namespace, "t"), pa.schema([("id", pa.int64())]))
    folder = place.model_copy(update={"url": f"s3://{TABLE_BUCKET}/{namespace}/t"})
    settings = make_settings(
        {
            "pipeline": "p",
            "source": {"url": "postgresql://u@h/d"},
            "store": {"url": folder.url, **folder.access()},
            "warehouse": {"url": "file:///w"},
        }
    )
    store = open_store(settings.store)
    store.put("data/a-deletes.parquet", b"positions")
    with pytest.raises(Misconfigured, match="403"):
        store.put("data/a-deletes.puffin", b"vectors")


@pytest.mark.parametrize("server", ["rest", "table-bucket"])
def test_a_rest_catalog_takes_one_of_many_commits_on_one_state(
    server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if server == "rest":
        place = at_rest(tmp_path, request.getfixturevalue("iceberg_rest"))
    else:
        place = in_table_bucket(request.getfixturevalue("s3_tables"))
    catalog, rows, many = open_catalog(place), pa.table({"id": [1]}), 6
    name = (place.iceberg.namespace, "t")
    catalog.create_namespace(name[0])
    once = {"commit.retry.num-retries": "0"}
    catalog.create_table(name, rows.schema, properties=once).append(rows)
    for won in range(1, 4):
        found = [catalog.load_table(name) for _ in range(many)]
        ready = threading.Barrier(many, timeout=60)

        def append(table: Any, ready: threading.Barrier = ready) -> bool:
            ready.wait()
            try:
                table.append(rows)
            except CommitFailedException:
                return False
            return True

        with ThreadPoolExecutor(many) as pool:
            assert sum(pool.map(append, found)) == 1
        assert catalog.load_table(name).scan().to_arrow().num_rows == 1 + won
