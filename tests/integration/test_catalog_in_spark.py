# ruff: noqa: S608  statements are made of constants
"""A table that merges have registered in a Hive metastore, as plain Spark reads and writes it by
its name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from devtools.services.hive import HiveServer
from tests.conformance.test_catalog import Shop, field
from tests.fixtures.catalogs import CatalogPlace
from tideline.catalog.hive import HiveCatalog
from tideline.catalog.names import CatalogName
from tideline.java import java_home
from tideline.planner.registration import register
from tideline.warehouse.job_jars import every_jar

ROOT = Path(__file__).resolve().parents[2]
FIELDS = [
    field("id", "long", "the key", nullable=False),
    field("status", "string"),
]


class Reader:
    """The process, and what it answers."""

    def __init__(self, url: str, scratch: Path) -> None:
        jars = ",".join(map(str, every_jar()))
        self.process = subprocess.Popen(
            [sys.executable, "tests/support/spark_catalog.py", jars, url, str(scratch)],
            cwd=ROOT,
            env={**os.environ, "JAVA_HOME": str(java_home())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def sql(self, statement: str) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(statement), file=self.process.stdin, flush=True)
        found = json.loads(self.process.stdout.readline())
        assert not isinstance(found, str), (statement, found)
        return found


@pytest.fixture
def reader(hive_server: HiveServer, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(hive_server.url, tmp_path / "scratch")
    yield made
    assert made.process.stdin is not None
    made.process.stdin.close()
    made.process.wait(60)


@pytest.fixture
def shop(hive_server: HiveServer, tmp_path: Path) -> Shop:
    """A pipeline with one registered table, of two rows, in a folder whose name has spaces."""
    place = CatalogPlace("hive", {"kind": "hive", "url": hive_server.url})
    shop = Shop(tmp_path / "with a space", place)
    shop.make("public.orders", FIELDS, comment="what they bought")
    rows = {"id": pa.array([1, 2], pa.int64()), "status": ["new", None]}
    write_deltalake(folder_of(shop), pa.table(rows), mode="append")
    assert list(register(shop.settings).made) == ["public.orders"]
    return shop


def folder_of(shop: Shop) -> str:
    return shop.history.target("public.orders").removeprefix("file://").replace("%20", " ")


def test_spark_reads_by_name_what_it_would_have_registered_alike(
    reader: Reader, shop: Shop
) -> None:
    name = shop.name()
    assert reader.sql(f"SELECT id, status FROM {name} ORDER BY id") == [
        {"id": 1, "status": "new"},
        {"id": 2, "status": None},
    ]
    described = {one["col_name"]: one for one in reader.sql(f"DESCRIBE EXTENDED {name}")}
    assert described["id"]["comment"] == "the key"
    assert described["Comment"]["data_type"] == "what they bought"
    assert described["Provider"]["data_type"] == "delta"
    assert described["Type"]["data_type"] == "EXTERNAL"

    # Another column is there for Spark at once, whatever the entry still says.
    more = pa.table({"id": pa.array([3], pa.int64()), "extra": ["x"]})
    write_deltalake(folder_of(shop), more, mode="append", schema_mode="merge")
    assert reader.sql(f"SELECT extra FROM {name} WHERE id = 3") == [{"extra": "x"}]
    assert list(register(shop.settings).made) == ["public.orders"]
    assert reader.sql(f"SELECT extra FROM {name} WHERE id = 3") == [{"extra": "x"}]

    own = CatalogName(name.schema, "by_spark")
    reader.sql(f"CREATE TABLE {own} USING delta LOCATION '{folder_of(shop)}'")
    assert shape(entries(shop, name)) == shape(entries(shop, own))


@pytest.mark.long
def test_spark_writes_by_name(reader: Reader, shop: Shop) -> None:
    name = shop.name()
    reader.sql(f"INSERT INTO {name} VALUES (3, 'new')")
    reader.sql(f"UPDATE {name} SET status = 'paid' WHERE id = 2")
    reader.sql(f"DELETE FROM {name} WHERE id = 1")
    source = "(SELECT 3L AS id) s ON t.id = s.id"
    reader.sql(f"MERGE INTO {name} t USING {source} WHEN MATCHED THEN DELETE")
    assert reader.sql(f"SELECT id, status FROM {name}") == [{"id": 2, "status": "paid"}]
    assert {"tableName": "orders"}.items() <= reader.sql(f"SHOW TABLES IN {name.schema}")[0].items()
    reader.sql(f"DROP TABLE {name}")
    assert DeltaTable(folder_of(shop)).version() > 0, "the table itself stays"
    assert shop.entry() is None


def entries(shop: Shop, name: CatalogName) -> Any:
    catalog = HiveCatalog(shop.settings)
    try:
        (found,) = catalog._tables(name.schema, [name.table])
    finally:
        catalog.close()
    return found


def shape(found: Any) -> dict[str, Any]:
    """What readers go by of an entry, without what is this table's own."""
    passing = ("tideline.", "transient_", "comment", "spark.sql.create.version")
    parameters = {
        key: value for key, value in found.parameters.items() if not key.startswith(passing)
    }
    parameters["spark.sql.sources.schema"] = "of its own"
    storage = found.sd
    return {
        "type": found.tableType,
        "parameters": parameters,
        "columns": [(one.name, one.type) for one in storage.cols],
        "formats": (storage.inputFormat, storage.outputFormat),
        "serde": storage.serdeInfo.serializationLib,
        "serde parameters": sorted(storage.serdeInfo.parameters),
        "placeholder": storage.location.rpartition("/")[2].replace(found.tableName, "T"),
        "partitions": found.partitionKeys,
    }
