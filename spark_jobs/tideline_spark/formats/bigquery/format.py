"""BigQuery as a table format of the jobs."""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql import SparkSession

from tideline.cluster_spark import is_cluster
from tideline.contract.errors import Misconfigured
from tideline.warehouse.bigquery.client import BigQueryPlace
from tideline.warehouse.bigquery.names import PLACE_SETTING
from tideline_spark.formats.base import TableFormat, Target
from tideline_spark.formats.bigquery.jobs import OVERTAKEN


def _open(session: SparkSession, url: str) -> Target:
    """Open a table. Its modules need the libraries of the extra `bigquery`, which every job lacks
    where no table is in BigQuery."""
    from tideline_spark.formats.bigquery.table import BigQueryTarget

    return BigQueryTarget(session, url)


def _installed(name: str) -> bool:
    """Return whether a module can be imported; `find_spec` raises where its package is missing."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _check(session: SparkSession) -> None:
    """Check for the libraries, and on a cluster for files that its executors see."""
    missing = [name for name in ("google.cloud.bigquery", "sqlglot") if not _installed(name)]
    if missing:
        raise Misconfigured(
            f"{', '.join(missing)} is not installed here, which BigQuery tables need",
            hint="pip install 'tideline-cdc[bigquery]'",
        )
    place = BigQueryPlace.parse(str(session.conf.get(PLACE_SETTING)))
    if place.staging is None and is_cluster(str(session.sparkContext.master)):
        raise Misconfigured(
            "rows go to and from BigQuery in files of Spark's driver, which a cluster's executors"
            " do not see",
            hint='set warehouse.bigquery.staging = "gs://bucket/folder", which they reach; or'
            ' merge.master = "local[2]": the MERGE itself runs in BigQuery',
        )


BIGQUERY: TableFormat = TableFormat(
    open=_open, marker=PLACE_SETTING, conflicts=(OVERTAKEN,), check=_check, firm=False
)
