# ruff: noqa: S608  statements are made of constants
"""A table that merges have registered in a Hive metastore, as plain Spark reads and writes it by
its name, with the settings that the docs name for readers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tideline_console.merge
from devtools.services.hive import HiveServer
from devtools.services.s3 import REGION, S3Server
from tests.conformance.test_catalog import Shop, field
from tests.fixtures.catalogs import CatalogPlace, hive_entry
from tests.fixtures.object_storage import place_in
from tests.fixtures.parts import Row, Shaped, schema_of
from tests.spark.test_descriptions import say
from tideline.catalog.names import CatalogName
from tideline.java import java_home
from tideline.planner.registration import register
from tideline.warehouse.job_jars import every_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
_SETTING = re.compile(r"--conf (\S+)=(\S+)")
FIELDS = [
    field("id", "long", "the key", nullable=False),
    field("status", "string"),
]


def settings_of_readers() -> dict[str, str]:
    """Those of CATALOG.md, for the metastore and for tables in S3."""
    return dict(_SETTING.findall((ROOT / "docs/CATALOG.md").read_text()))


class Reader:
    """The process, and what it answers."""

    def __init__(self, metastore: HiveServer, s3: S3Server, scratch: Path) -> None:
        settings = {
            **settings_of_readers(),
            "spark.hadoop.hive.metastore.uris": metastore.url,
            "spark.hadoop.fs.s3a.endpoint.region": REGION,
            "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.jars": ",".join(map(str, every_jar())),
            "spark.sql.warehouse.dir": str(scratch),
        }
        access = {
            "AWS_ACCESS_KEY_ID": s3.access_key_id,
            "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
        }
        self.process = subprocess.Popen(
            [sys.executable, "tests/support/spark_catalog.py", json.dumps(settings)],
            cwd=ROOT,
            env={**os.environ, **access, "JAVA_HOME": str(java_home())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def sql(self, statement: str) -> Any:
        found = self.answer(statement)
        assert not isinstance(found, str), (statement, found)
        return found

    def answer(self, statement: str) -> Any:
        """Rows, or the text of an error."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(statement), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def reader(
    hive_server: HiveServer, s3: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    made = Reader(hive_server, s3, tmp_path_factory.mktemp("reader"))
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
    assert shape(hive_entry(shop.settings, name)) == shape(hive_entry(shop.settings, own))


def test_what_a_merge_made_in_s3_is_read_by_name(
    reader: Reader,
    hive_server: HiveServer,
    s3: S3Server,
    spark_on_s3: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows, comments and NOT NULL, before and after a change of all of them."""
    catalog = CatalogPlace("hive", {"kind": "hive", "url": hive_server.url})
    names = {"schema_name": "{pipeline}"}
    shop = Shop(tmp_path, catalog, (), place=place_in(s3), names=names)
    history, orders = shop.history, "public.orders"

    def merge() -> None:
        monkeypatch.setattr(
            tideline_console.merge,
            "_run_plan",
            lambda settings, plan: tideline_console.merge.run_in(spark_on_s3, settings, plan),
        )
        assert tideline_console.merge.run(shop.settings, []) == 0

    history.commit(Shaped(schema_of(orders, {"id": "int64", "status": "string"}, ["id"])))
    history.commit(
        Row(orders, "c", {"id": 1, "status": "new"}),
        Row(orders, "c", {"id": 2, "status": "paid"}),
        states=say(history, "what they bought", {"status": "of 'it'"}, ("status",)),
    )
    merge()
    assert reader.sql("SELECT id, status FROM shop.orders ORDER BY id") == [
        {"id": 1, "status": "new"},
        {"id": 2, "status": "paid"},
    ]
    assert described(reader) == ("what they bought", {"id": None, "status": "of 'it'"})
    refused = reader.answer("INSERT INTO shop.orders (id, status) VALUES (3, NULL)")
    assert "NOT NULL constraint violated for column: status" in refused
    # Delta has none of its tables shown so.
    assert "not supported for Delta tables" in reader.answer("SHOW CREATE TABLE shop.orders")

    history.commit(
        Row(orders, "u", {"id": 2, "status": "sent"}),
        Row(orders, "d", {"id": 1}),
        states=say(history, None, {"id": "the key"}),
    )
    merge()
    assert reader.sql("SELECT id, status FROM shop.orders") == [{"id": 2, "status": "sent"}]
    assert described(reader) == (None, {"id": "the key", "status": None})


def described(reader: Reader) -> tuple[str | None, dict[str, str | None]]:
    """The comment of ``shop.orders``, and those of the source's columns."""
    found = {one["col_name"]: one for one in reader.sql("DESCRIBE EXTENDED shop.orders")}
    comment = found.get("Comment", {}).get("data_type")
    return comment, {name: found[name]["comment"] for name in ("id", "status")}


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
