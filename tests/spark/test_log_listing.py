"""Listing a table's log: what Delta's own stores list, without what lies before the version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from devtools.services.s3 import S3Server
from tests.fixtures.object_storage import BUCKET, place_in
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.planner import plan_merge
from tideline.settings import Store
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.delta.log_store import TAIL_CLASS
from tideline_spark.merge import run_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = 23
NAMES = [
    *(f"{number:020d}.{kind}" for number in range(COMMITS) for kind in ("json", "crc")),
    f"{10:020d}.checkpoint.parquet",
    f"{20:020d}.checkpoint.{1:010d}.{2:010d}.parquet",
    f"{0:020d}.{10:020d}.compacted.json",
    "_last_checkpoint",
    "_staged_commits/00000000000000000022.other.json",
    "left over: of a writer.tmp",
    f"{7:020d}-.tmp",
    f".{20:020d}.json.crc",
]
FIRSTS = [
    "-",
    f"{0:020d}.",
    f"{7:020d}.",
    f"{20:020d}.",
    f"{22:020d}.json",
    f"{COMMITS:020d}.",
    "z",
]


class Lister:
    """A class of log stores, with the session's settings of files and ``more``."""

    def __init__(self, spark: SparkSession, name: str, **more: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._settings = jvm.org.apache.hadoop.conf.Configuration(spark._jsc.hadoopConfiguration())
        for key, value in more.items():
            self._settings.set(key.replace("_", "."), value)
        package, _, kind = name.rpartition(".")
        classes = jvm.tideline if package == "tideline" else jvm.io.delta.storage
        self._store = getattr(classes, kind)(self._settings)

    def __call__(self, folder: str, first: str) -> list[tuple[str, int]]:
        """The names of the files and their bytes, in order; folders are left out, of which an
        object storage has none."""
        return files_of(self.iterator(folder, first))

    def iterator(self, folder: str, first: str) -> Any:
        return self._store.listFrom(self._path(folder, first), self._settings)


def files_of(listed: Any) -> list[tuple[str, int]]:
    found = []
    while listed.hasNext():
        one = listed.next()
        if one.isFile():
            found.append((one.getPath().getName(), one.getLen()))
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "t" / "_delta_log"
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


@pytest.mark.parametrize("first", FIRSTS)
def test_files(spark: SparkSession, log: Path, first: str) -> None:
    ours = Lister(spark, TAIL_CLASS)(log.as_uri(), first)
    assert ours == Lister(spark, "io.delta.storage.HDFSLogStore")(log.as_uri(), first)
    assert [name for name, _ in ours] == sorted(
        path.name
        for path in log.iterdir()
        if path.is_file() and path.name >= first and not path.name.startswith(".")
    )


def test_a_file_that_is_deleted_meanwhile_is_not_listed(spark: SparkSession, log: Path) -> None:
    """Of Delta's own, the cleanup of a log deletes while others read: one that is gone when its
    turn comes was never needed. None is looked at before its turn."""
    found = Lister(spark, TAIL_CLASS).iterator(log.as_uri(), f"{7:020d}.")
    assert found.next().getPath().getName() == f"{7:020d}.crc"
    for path in log.iterdir():
        if path.is_file() and path.name != f"{9:020d}.json":
            path.unlink()
    name = f"{9:020d}.json"
    assert files_of(found) == [(name, len(name))]


@pytest.fixture
def stored(s3: S3Server, spark_on_s3: SparkSession) -> str:
    """The url of that log in S3; beside it a file of the table."""
    table = f"{place_in(s3).url}/t"
    objects = objects_in(s3, table)
    for name in ["part-0.parquet", *(f"_delta_log/{name}" for name in NAMES)]:
        objects.create(name, name.encode())
    return f"{table}/_delta_log"


def objects_in(s3: S3Server, url: str) -> ObjectStore:
    return open_store(Store(url=url, **s3.access))


@pytest.mark.parametrize("first", FIRSTS)
def test_objects(spark_on_s3: SparkSession, stored: str, first: str) -> None:
    ours = Lister(spark_on_s3, "tideline.ConditionalLogStore")(stored, first)
    assert ours == Lister(spark_on_s3, "io.delta.storage.S3SingleDriverLogStore")(stored, first)


def test_the_folders_of_a_table_are_listed_as_they_were(
    spark_on_s3: SparkSession, stored: str
) -> None:
    """VACUUM walks through them by the log's store: it wants what lies deeper as a folder."""
    found = Lister(spark_on_s3, "tideline.ConditionalLogStore").iterator(
        stored.rpartition("/")[0], "\u0001"
    )
    names = []
    while found.hasNext():
        names.append(found.next().getPath().getName())
    assert sorted(names) == ["_delta_log", "part-0.parquet"]


def test_a_log_that_is_not_there(spark_on_s3: SparkSession, stored: str, tmp_path: Path) -> None:
    """Delta takes that for no table, and an empty list for a log that lost its commits."""
    nowhere = {
        "tideline.ConditionalLogStore": f"{stored}-none/_delta_log",
        TAIL_CLASS: (tmp_path / "none").as_uri(),
    }
    for name, folder in nowhere.items():
        with pytest.raises(Py4JJavaError) as caught:
            Lister(spark_on_s3, name)(folder, FIRSTS[0])
        assert "FileNotFoundException" in caught.value.java_exception.toString()


def test_what_lies_before_is_not_asked_for(
    spark_on_s3: SparkSession, s3: S3Server, stored: str
) -> None:
    """S3 gives a thousand names a request; here ten."""
    lists = {}
    for name in ("tideline.ConditionalLogStore", "io.delta.storage.S3SingleDriverLogStore"):
        lister = Lister(
            spark_on_s3, name, fs_s3a_paging_maximum="10", fs_s3_impl_disable_cache="true"
        )
        before = s3.requests(BUCKET)
        assert len(lister(stored, f"{22:020d}.")) == 4
        lists[name] = (s3.requests(BUCKET) - before)["LIST"]
    ours, deltas = lists.values()
    assert ours == 1 and deltas >= len(NAMES) // 10


def test_another_client_of_s3_lists_as_it_can(spark: SparkSession, log: Path) -> None:
    """Another than S3A, whose requests are its own affair; here that of files."""
    ours = Lister(spark, "tideline.ConditionalLogStore")(log.as_uri(), FIRSTS[2])
    assert ours == Lister(spark, "io.delta.storage.HDFSLogStore")(log.as_uri(), FIRSTS[2]) != []


def test_a_store_that_has_the_first_kind_of_lists_alone(
    spark_on_s3: SparkSession, s3: S3Server, stored: str
) -> None:
    """That request cannot begin in the middle."""
    lister = Lister(
        spark_on_s3,
        "tideline.ConditionalLogStore",
        fs_s3a_list_version="1",
        fs_s3a_paging_maximum="10",
        fs_s3_impl_disable_cache="true",
    )
    before = s3.requests(BUCKET)
    assert len(lister(stored, f"{22:020d}.")) == 4
    assert (s3.requests(BUCKET) - before)["LIST"] >= len(NAMES) // 10


def test_merges_list_by_it(spark: SparkSession, tmp_path: Path) -> None:
    history = History(tmp_path)
    history.commit(Shaped(schema_of("public.t", {"id": "int32"}, ["id"])))
    history.commit(Row("public.t", "c", {"id": 1}))
    run_plan(spark, plan_merge(history.settings, plan_id="p"))
    [log] = tmp_path.rglob("_delta_log")
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(log.as_uri())
    deltas = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    used = deltas.store().getDelegate(path).logStoreImpl()
    assert used.getClass().getName() == TAIL_CLASS
