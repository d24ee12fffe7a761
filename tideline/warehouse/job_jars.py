"""The jars that Spark needs for tables of each format: jobs and whoever starts them ask here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tideline.warehouse.delta.jars import delta_jars

JARS: Mapping[str, Callable[[], list[Path]]] = {
    "delta": delta_jars,
}
"""By format: the function that returns its jars, fetched when the cache lacks them."""


def job_jars() -> list[Path]:
    """Return the jars for ``spark.jars`` that fit the installed Spark, those of every format: a
    session has the settings of all of them.

    Raises Unavailable when the cache lacks one and it cannot be fetched; Misconfigured without Java
    or a Spark that jobs may run on; CorruptData when one is another file than it should be.
    """
    return [path for jars in JARS.values() for path in jars()]
