"""One Spark application of this process, for commands that need several jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tideline.settings import Settings


@contextmanager
def spark_session(settings: Settings, what: str) -> Iterator[SparkSession]:
    """A session with Delta, as ``[merge]`` in the settings says; it ends with the context."""
    from spark_jobs.session import end_session, make_session
    from tideline.delta_jars import delta_jars
    from tideline.java import java_home
    from tideline.local_spark import QUICK_LAUNCH, short_lived, spark_home

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_LAUNCH)
    if (home := spark_home()) is not None:
        os.environ["SPARK_HOME"] = str(home)  # Else spark-submit starts a Python to look for it.
    merge = settings.merge
    jars = [str(path) for path in delta_jars()] if merge.jars is None else merge.jars.split(",")
    session = make_session(
        master=merge.master,
        driver_memory=merge.driver_memory,
        jars=jars,
        app_name=f"tideline {what} {settings.pipeline}",
        java_options=short_lived(),
    )
    try:
        yield session
    finally:
        end_session(session)
