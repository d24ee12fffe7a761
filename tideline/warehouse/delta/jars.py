"""Delta Lake's four jars for the installed Spark, each with its SHA-256.

Spark's own resolution brings 33 jars of 174 MB, nearly all of which Spark has already. Only these
four (12.7 MB) are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tideline.jars import JarSet, ensure_jars
from tideline.spark_versions import installed_spark, spark_line

GROUP = "io.delta"
VERSION = "4.4.0"
BUILDS: Mapping[str, str] = MappingProxyType(
    {
        "4.0": "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
        "4.1": "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
        "4.2": "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    }
)
"""By line of Spark: SHA-256 of the jar of ``VERSION`` that is built for it, in hex."""
SHARED: Mapping[str, str] = MappingProxyType(
    {
        "delta-storage": "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
        "delta-kernel-api": "ee9b5a14ac3b7efdff4d61a58478fe8eb0e5a3fbca43889dca7290795fe79a11",
        "delta-kernel-defaults": "225c975199e4718b38ee5b7e6da7f19e9585024262b2cec2656b32151a856b0b",
    }
)
"""SHA-256 of the jars that are the same for each Spark; a new version brings new ones
(docs/SUPPLY_CHAIN.md)."""

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "org.apache.spark.sql.delta.DeltaLog": "delta-spark",
        "io.delta.storage.LogStore": "delta-storage",
    }
)
"""Classes by which these jars are known to be there, each with its jar."""
_NOT_WANTED = ("org.*:*", "com.*:*", "net.*:*", "jakarta.*:*", "javax.*:*", "io.unitycatalog:*")
"""What Delta depends on and Spark already has."""


def build_for(line: str) -> str:
    """Return the name of the jar that is built for Spark ``line``, a key of `BUILDS`."""
    return f"delta-spark_{line}_2.13"


def jar_names(line: str) -> list[str]:
    """Return the names of the four jars for Spark ``line``, that of the build first."""
    return [build_for(line), *SHARED]


def delta_jar_set(line: str) -> JarSet:
    """Return the jars for Spark ``line``, a key of `BUILDS`."""
    digests = {build_for(line): BUILDS[line], **SHARED}
    return JarSet(
        "Delta's jars",
        f"delta-{VERSION}-spark-{line}",
        (f"{GROUP}:{build_for(line)}:{VERSION}",),
        _NOT_WANTED,
        {f"{name}-{VERSION}.jar": digest for name, digest in digests.items()},
    )


def delta_jars() -> list[Path]:
    """Return the four jars for ``spark.jars`` that fit the installed Spark.

    Raises what `ensure_jars` raises; Misconfigured without a Spark that jobs may run on.
    """
    return ensure_jars(delta_jar_set(spark_line(installed_spark())))
