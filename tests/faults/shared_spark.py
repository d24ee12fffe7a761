"""Commands of `tideline` in a process of their own, whose Spark is that of the tests.

All that is written to BigQuery is written by a driver's Python; its Java folds rows. So the death
of that Python is a merge's death there, and costs no start of a Java. What writes by Java (tables
of files) is to be killed with it (`kills.command`): here it would go on alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
"""PySpark's own names of a Java that is there."""
_PROGRAM = "from tests.faults.shared_spark import main; main()"


def shared_command(words: Sequence[str], config: Path) -> list[str]:
    """A command of `tideline`, to be run in the environment of `shared_environment`."""
    return [sys.executable, "-c", _PROGRAM, *words, "--config", str(config)]


def shared_environment(spark: SparkSession) -> dict[str, str]:
    """The environment of a process that is to use the Java of ``spark``. Its tables are merged one
    after another, so that its requests have an order."""
    gateway: Any = spark.sparkContext._gateway
    found = gateway.gateway_parameters
    java = {_PORT: str(found.port), _SECRET: str(found.auth_token)}
    return {**os.environ, **java, "TIDELINE_MERGE__TABLES_AT_ONCE": "1"}


def main() -> None:
    """Run the command line, without a Java of its own."""
    from tideline_console import merge, rebuild
    from tideline_console.app import app

    for command in (merge, rebuild):
        command.spark_session = _joined  # type: ignore[attr-defined]
    app()


@contextmanager
def _joined(*given: object, **more: object) -> Iterator[SparkSession]:
    """A session of the Java that is there, which goes on when the context ends."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    gateway: Any = SparkContext._gateway
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.JavaSparkContext.fromSparkContext(running)
    conf = SparkConf(_jvm=gateway.jvm, _jconf=running.conf())
    yield SparkSession(SparkContext(gateway=gateway, jsc=java, conf=conf))
