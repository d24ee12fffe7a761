"""``tideline merge`` into BigQuery on a standalone cluster of two workers, which see no file of the
driver's: all goes through the staging bucket, for which a folder of this machine stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.bigquery_tables import BigQueryTables
from tests.faults.every_mode import EveryMode
from tests.faults.test_cluster import Cluster, hiding
from tests.fixtures.bigquery import Dataset
from tests.spark.test_bigquery_staging import BUCKET, FILE_SYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(1_800)]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The folder of the driver's own files."""
    made = tmp_path / "scratch"
    made.mkdir()
    return made


@pytest.fixture
def cluster(tmp_path: Path, scratch: Path) -> Iterator[Cluster]:
    """Two workers, over which ``scratch`` is another, empty folder: another machine's."""
    with Cluster(tmp_path / "cluster", launchers=[hiding(scratch)] * 2) as started:
        yield started


@pytest.fixture
def bucket(dataset: Dataset, tmp_path: Path) -> Path:
    made = tmp_path / "bucket"
    made.mkdir()
    dataset.front.jobs.buckets[BUCKET] = made
    return made


def test_tables_in_every_mode_are_merged(
    cluster: Cluster,
    bucket: Path,
    dataset: Dataset,
    spark: SparkSession,
    tmp_path: Path,
    scratch: Path,
) -> None:
    """Made, then changed, with values of old rows, old versions and old keys read of BigQuery."""
    root = tmp_path / "root"
    there = BigQueryTables(dataset).reached_by(spark, root)
    staging = there.place.bigquery.model_copy(update={"staging": f"gs://{BUCKET}/rows"})
    there.place = there.place.model_copy(update={"bigquery": staging})
    tables = EveryMode(root, seed=5, place=there.place, bigquery=there)
    tables.fill()
    hadoop = {
        "fs.gs.impl": FILE_SYSTEM,
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.{BUCKET}.linkFallback": bucket.as_uri(),
    }
    lines = [f"spark.hadoop.{name} {value}\n" for name, value in hadoop.items()]
    lines.append(f"spark.local.dir {scratch}\n")
    for _ in range(2):
        command = cluster.command(tables, {}, defaults="".join(lines), shared_files=True)
        assert command.end() == 0, command.output
        tables.check()
        tables.more(24)
    assert not [one for one in bucket.rglob("*") if one.is_file()]
