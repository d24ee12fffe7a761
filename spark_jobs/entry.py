"""How a program that spark-submit starts begins and ends: session, exit status, last words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from spark_jobs.failures import unexpected
from spark_jobs.session import end_session, make_session

SAID = "tideline: "
"""What each line about a failure begins with, so that it is found among Spark's own."""


def run_job(work: Callable[[SparkSession], Sequence[str]], *, name: str, doing: str) -> int:
    """Do ``work`` in a session called ``name``, and say on stderr what failed ``doing`` it.

    ``work`` returns a line for each table that it could not do. The exit status: 0, 1 where there
    are such, 2 where the work ended without a result.
    """
    spark = None
    try:
        spark = make_session(app_name=name)
        wrong = work(spark)
    except Exception as failure:  # noqa: BLE001  it is named, and no text of Spark's is shown
        error = unexpected(failure, doing)
        print(f"{SAID}{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    finally:
        if spark is not None:
            end_session(spark)
    for line in wrong:
        print(f"{SAID}{line}", file=sys.stderr)
    return 1 if wrong else 0
