"""Starts and ends a program that spark-submit runs: session, exit status, failure lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from tideline.contract.printable import printable
from tideline.warehouse.hadoop import taken
from tideline_spark.failures import unexpected
from tideline_spark.session import end_session, make_session

REPORTED = "tideline: "
"""The prefix of each line about a failure, which makes it findable among Spark's own."""


def run_job(work: Callable[[SparkSession], Sequence[str]], *, name: str, doing: str) -> int:
    """Do ``work`` in a session called ``name``, and report on stderr what failed ``doing`` it.

    ``work`` returns a line for each failed table. Returns the exit status: 0, 1 with failed tables,
    2 when the work ended without a result.
    """
    spark = None
    try:
        spark = make_session(app_name=name, others=taken())
        wrong = work(spark)
    except Exception as failure:  # noqa: BLE001  reported by name, without Spark's text
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
    """Print one `printable` line on stderr; readers recognise it by its prefix."""
    print(f"{REPORTED}{printable(words)}", file=sys.stderr)
