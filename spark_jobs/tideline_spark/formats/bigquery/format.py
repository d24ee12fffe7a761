"""BigQuery as a table format of the jobs."""

from __future__ import annotations

from importlib.util import find_spec

from pyspark.sql import SparkSession

from tideline.cluster_spark import is_cluster
from tideline.contract.errors import Misconfigured
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
    """Check for the libraries, and for a Spark whose files its driver sees."""
    missing = [name for name in ("google.cloud.bigquery", "sqlglot") if not _installed(name)]
    if missing:
        raise Misconfigured(
            f"{', '.join(missing)} is not installed here, which BigQuery tables need",
            hint="pip install 'tideline-cdc[bigquery]'",
        )
    if is_cluster(str(session.sparkContext.master)):
        raise Misconfigured(
            "rows for BigQuery are uploaded by Spark's driver, which does not have those of a"
            " cluster's executors",
            hint='set merge.master = "local[2]": the MERGE itself runs in BigQuery',
        )


BIGQUERY: TableFormat = TableFormat(
    open=_open, marker=PLACE_SETTING, conflicts=(OVERTAKEN,), check=_check, firm=False
)
