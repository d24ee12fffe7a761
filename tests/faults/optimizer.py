"""Somebody else's Spark: ``python -m tests.faults.optimizer CONFIG URL``, with a JVM of its own.

It has the jars, log store and access of the settings, and nothing else of a merge. For each line of
its input it runs OPTIMIZE on the table at ``URL``, and prints ``optimized`` with the number of
files that were put together, or ``refused`` after a conflict.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tideline.settings import load_settings
from tideline_console.spark import spark_session
from tideline_spark.failures import SparkFailure, is_conflict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main() -> None:
    config, url = sys.argv[1:]
    with spark_session(load_settings(config), "optimize") as session:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(_optimize(session, url), flush=True)


def _optimize(session: SparkSession, url: str) -> str:
    try:
        [row] = session.sql(f"OPTIMIZE delta.`{url}`").collect()
    except SparkFailure as error:
        if not is_conflict(error):
            raise
        return "refused"
    return f"optimized {row['metrics']['numFilesRemoved']}"


if __name__ == "__main__":
    main()
