"""Settings of a Spark session that count for one statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tideline.contract.errors import InvariantBroken


@contextmanager
def setting(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply ``settings`` to the session inside the context."""
    for name, value in settings.items():
        session.conf.set(name, verbatim(value))
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def verbatim(value: str) -> str:
    """Return ``value`` unchanged. Raises InvariantBroken for one in which Spark would substitute
    something (``${…}``, by `ConfigReader`)."""
    if "${" in value:
        raise InvariantBroken("a setting of Spark's session is to hold a reference")
    return value
