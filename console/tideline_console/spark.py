"""Runs one Spark application in this process, for commands that need several jobs."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

from tideline.contract.errors import TidelineError
from tideline_console.output import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tideline.settings import Settings

_OUTPUTS = (1, 2)
_SHOWN_BYTES = 20_000


def new_run_id() -> str:
    """Return an id for the documents of a run that a command begins; ids sort by time."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


@contextmanager
def spark_session(
    settings: Settings, what: str, *, long_lived: bool = False
) -> Iterator[SparkSession]:
    """Open a session by ``[merge]`` in the settings; it ends with the context. A ``long_lived`` one
    is for thousands of merges."""
    from tideline.cluster_spark import cluster_settings
    from tideline.java import java_home
    from tideline.local_spark import LONG_LIVED, QUICK_LAUNCH, short_lived, spark_home
    from tideline.warehouse.job_jars import job_jars
    from tideline.warehouse.spark_settings import access_settings
    from tideline_spark.session import LONG_LIVED_SETTINGS, end_session, make_session

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_LAUNCH)
    if (home := spark_home()) is not None:
        os.environ["SPARK_HOME"] = str(home)  # Otherwise spark-submit starts a Python to find it.
    merge = settings.merge
    jars = (
        [str(path) for path in job_jars(settings)] if merge.jars is None else merge.jars.split(",")
    )
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryDirectory(prefix="tideline-spark-") as folder,
        _shown_if_it_fails(output),
    ):
        with _output_to(output):
            session = make_session(
                master=merge.master,
                driver_memory=merge.driver_memory,
                jars=jars,
                app_name=f"tideline {what} {settings.pipeline}",
                java_options=LONG_LIVED if long_lived else short_lived(),
                # Spark makes this unused folder, by default in the working directory.
                others={
                    "spark.sql.warehouse.dir": folder,
                    **cluster_settings(merge, merge.master),
                    **(LONG_LIVED_SETTINGS if long_lived else {}),
                    **access_settings(settings),
                },
            )
        try:
            yield session
        finally:
            end_session(session)


@contextmanager
def _output_to(file: IO[bytes]) -> Iterator[None]:
    """Redirect the output of processes started in the context to ``file``, for as long as they run:
    Java and Spark log much at every start and VACUUM that users do not need."""
    sys.stdout.flush()
    sys.stderr.flush()
    ours = [os.dup(number) for number in _OUTPUTS]
    for number in _OUTPUTS:
        os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, kept in zip(_OUTPUTS, ours, strict=True):
            os.dup2(kept, number)
            os.close(kept)


@contextmanager
def _shown_if_it_fails(output: IO[bytes]) -> Iterator[None]:
    """Show the end of Spark's output when it fails with an error other than ours."""
    try:
        yield
    except TidelineError:
        raise
    except Exception:
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _SHOWN_BYTES))
        for line in output.read().decode(errors="replace").splitlines():
            say(line, error=True)
        raise
