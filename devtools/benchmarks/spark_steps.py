"""Names the steps of a merge: Spark's jobs by what they are for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tideline_spark.scala_items import scala_items

_FIGURES = re.compile(r"\d+")


def jobs_so_far(spark: Any) -> Iterator[Any]:
    """Yield the jobs of the application, as Spark's own store knows them."""
    context = spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return scala_items(context.statusStore().jobsList(None))


def step_of(job: Any) -> str:
    """Return the step that a job is part of, in Delta's words or by our line that starts it."""
    described = job.description()
    text = str(described.get()) if described.isDefined() else str(job.name()).rpartition("/")[2]
    return _FIGURES.sub("N", text)
