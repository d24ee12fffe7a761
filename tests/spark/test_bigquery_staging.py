"""Rows are staged in a bucket by Spark's executors, and loaded from it: a folder of this machine
stands for the bucket, in Hadoop's file systems and in the stand-in for BigQuery."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from tests.fixtures.bigquery import Dataset
from tests.fixtures.bigquery_place import with_bigquery
from tests.fixtures.parts import History, Row, Shaped, schema_of
from tideline.contract.errors import Misconfigured
from tideline.contract.receipt import Outcome
from tideline.settings import Warehouse
from tideline.settings.bigquery import BigQuerySettings
from tideline_spark.formats.bigquery import format as bigquery_format
from tideline_spark.formats.bigquery import reading
from tideline_spark.formats.registry import FORMATS, open_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = "public.t"
BUCKET = "tideline-staging"
FILE_SYSTEM = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture
def folder(spark: SparkSession, dataset: Dataset, tmp_path: Path) -> Path:
    """The bucket's folder."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set("fs.gs.impl", FILE_SYSTEM)
    hadoop.set("fs.viewfs.overload.scheme.target.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
    hadoop.set(f"fs.viewfs.mounttable.{BUCKET}.linkFallback", folder.as_uri())
    hadoop.set("fs.gs.impl.disable.cache", "true")
    dataset.front.jobs.buckets[BUCKET] = folder
    return folder


@pytest.fixture
def history(request: pytest.FixtureRequest, tmp_path: Path, folder: Path) -> History:
    place = Warehouse(url=(tmp_path / "warehouse").as_uri())
    staging = {"bigquery": BigQuerySettings(staging=f"gs://{BUCKET}/rows/")}
    made = with_bigquery(request, place.model_copy(update=staging))
    history = History(tmp_path, place=made)
    history.commit(Shaped(schema_of(T, {"id": "int32", "v": "string"}, ["id"])))
    return history


def files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file()]


def test_rows_go_through_the_bucket_and_leave_nothing_in_it(
    history: History, folder: Path, dataset: Dataset, spark: SparkSession
) -> None:
    history.commit(*(Row(T, "c", {"id": key, "v": "one"}) for key in range(1, 50)))
    history.merge(spark)
    history.commit(Row(T, "u", {"id": 1, "v": "two"}), Row(T, "d", {"id": 2}))
    assert [one.outcome for one in history.merge(spark).tables] == [Outcome.APPLIED]
    rows = open_target(spark.newSession(), history.target(T)).rows().collect()
    assert {row["id"]: row["v"] for row in rows} == {
        key: "two" if key == 1 else "one" for key in range(1, 50) if key != 2
    }
    uploads = [call for call in dataset.front.calls if call.path.startswith("/upload")]
    assert not uploads and not files(folder)


def test_a_load_that_fails_leaves_nothing_in_it(
    history: History, folder: Path, dataset: Dataset, spark: SparkSession
) -> None:
    dataset.front.jobs.buckets.clear()
    history.commit(Row(T, "c", {"id": 1, "v": "one"}))
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.FAILED
    assert "notFound" in str(receipt.error)
    assert not files(folder)
    dataset.front.jobs.buckets[BUCKET] = folder
    assert [one.outcome for one in history.merge(spark).tables] == [Outcome.APPLIED]


def test_rows_that_may_not_be_removed_fail_no_merge(
    history: History, dataset: Dataset, spark: SparkSession
) -> None:
    """They expire by themselves; and the reason of a failure is not hidden by them."""
    dataset.front.denied.add("bigquery.tables.delete")
    history.commit(Row(T, "c", {"id": 1, "v": "one"}))
    assert [one.outcome for one in history.merge(spark).tables] == [Outcome.APPLIED]
    history.commit(Row(T, "u", {"id": 1, "v": "two"}))
    dataset.front.jobs.buckets.clear()
    (receipt,) = history.merge(spark).tables
    assert receipt.outcome is Outcome.FAILED
    assert "notFound" in str(receipt.error)


def test_on_a_cluster_rows_are_read_from_the_bucket_and_leave_nothing_in_it(
    history: History, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors see no file of the driver's; the bucket's are there as long as the session is."""
    monkeypatch.setattr(reading, "is_cluster", lambda master: True)
    history.commit(*(Row(T, "c", {"id": key, "v": "one"}) for key in range(1, 50)))
    history.merge(spark)
    session = spark.newSession()
    target = open_target(session, history.target(T))
    frames = target.rows(), target.rows_of(["id"], ["id = 7"])
    assert all(one.startswith("gs://") for frame in frames for one in frame.inputFiles())
    assert len(files(folder)) >= 2
    assert sorted(row["id"] for row in frames[0].collect()) == [*range(1, 50)]
    assert [row["id"] for row in frames[1].collect()] == [7]
    del session, target, frames
    spark.newSession()  # PySpark holds the last one that was made.
    gc.collect()
    assert not files(folder)


def test_a_cluster_is_refused_without_a_bucket(
    history: History,
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bigquery_format, "is_cluster", lambda master: True)
    FORMATS["bigquery"].check(spark.newSession())
    with_bigquery(request, Warehouse(url=(tmp_path / "warehouse").as_uri()))
    with pytest.raises(Misconfigured, match="files of Spark's driver") as refused:
        FORMATS["bigquery"].check(spark.newSession())
    assert "warehouse.bigquery.staging" in (refused.value.hint or "")


@pytest.mark.parametrize("url", ["s3://bucket/a", "gs://", "gs://b/a?x=1", "gs://user@bucket/a"])
def test_another_place_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="must be gs://bucket/folder"):
        BigQuerySettings(staging=url)
