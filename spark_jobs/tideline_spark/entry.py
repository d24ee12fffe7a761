"""How a program that spark-submit starts begins and ends: session, exit status, last words."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from tideline.contract.printable import printable
from tideline_spark.failures import unexpected
from tideline_spark.session import end_session, make_session

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
        say(f"{type(error).__name__}: {error}")
        return 2
    finally:
        if spark is not None:
            end_session(spark)
    for line in wrong:
        say(line)
    return 1 if wrong else 0


def say(words: str) -> None:
    """Print one line of ours on stderr, `printable`: who reads it goes by how a line begins."""
    print(f"{SAID}{printable(words)}", file=sys.stderr)
