"""Iceberg's runtime for Spark, and the drivers of databases that hold a catalog, by SHA-256.

Iceberg 1.12 has no runtime for Spark 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tideline.contract.errors import Misconfigured
from tideline.jars import JarSet, ensure_jars
from tideline.spark_versions import installed_spark, spark_line

VERSION = "1.12.0"
BUILDS: Mapping[str, str] = MappingProxyType(
    {"4.1": "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82"}
)
"""By line of Spark: SHA-256 of the runtime of ``VERSION`` that is built for it, in hex."""
_DRIVERS = {
    "sqlite": (
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
    ),
    "postgresql": (
        "org.postgresql:postgresql:42.7.7",
        "157963d60ae66d607e09466e8c0cdf8087e9cb20d0159899ffca96bca2528460",
    ),
}
"""By scheme of a catalog's url: the driver's coordinates and SHA-256."""
_NOT_WANTED = ("org.slf4j:slf4j-api", "org.checkerframework:checker-qual")
"""What drivers depend on and Spark already has."""

CLASSES: Mapping[str, str] = MappingProxyType(
    {"org.apache.iceberg.spark.SparkCatalog": "iceberg-spark-runtime"}
)
"""A class by which the runtime is known to be there, with its jar."""


def iceberg_jar_set(line: str) -> JarSet:
    """Return the runtime for Spark ``line``, and the drivers. Raises Misconfigured for a line that
    Iceberg has no runtime for."""
    if line not in BUILDS:
        raise Misconfigured(
            f"Iceberg {VERSION} has no runtime for Spark {line}",
            hint=f"use Spark {' or '.join(BUILDS)} for a pipeline with Iceberg tables"
            " (docs/VERSIONS.md)",
        )
    runtime = f"iceberg-spark-runtime-{line}_2.13"
    drivers = dict(_DRIVERS.values())
    return JarSet(
        "Iceberg's jars",
        f"iceberg-{VERSION}-spark-{line}",
        (f"org.apache.iceberg:{runtime}:{VERSION}", *drivers),
        _NOT_WANTED,
        {
            f"{runtime}-{VERSION}.jar": BUILDS[line],
            **{_file(coordinates): digest for coordinates, digest in drivers.items()},
        },
    )


def iceberg_jars() -> list[Path]:
    """Return the jars for ``spark.jars`` that fit the installed Spark.

    Raises what `ensure_jars` and `iceberg_jar_set` raise; Misconfigured without a Spark that jobs
    may run on.
    """
    return ensure_jars(iceberg_jar_set(spark_line(installed_spark())))


def iceberg_runs() -> bool:
    """Return whether Iceberg has a runtime for the installed Spark. Raises Misconfigured without
    one that jobs may run on."""
    return spark_line(installed_spark()) in BUILDS


def _file(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"
