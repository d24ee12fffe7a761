"""The versions of Spark that jobs run on, and the one that is installed here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

from tideline.contract.errors import Misconfigured
from tideline.local_spark import spark_home

FIRST: Mapping[str, str] = MappingProxyType({"4.0": "4.0.4", "4.1": "4.1.3", "4.2": "4.2.0"})
"""By line, the first release that is accepted; docs/VERSIONS.md has what was run. Earlier ones are
refused: Spark 4.0.0 merges wrong texts without an error."""

_CORE = re.compile(r"spark-core_[\d.]+-(\d[\w.-]*)\.jar")
_RELEASE = re.compile(r"(\d+\.\d+)\.(\d+)(.*)", re.DOTALL)
_BEFORE_RELEASE = re.compile(r"(?<![a-z])(preview|dev|rc|snapshot)", re.IGNORECASE)
"""A suffix of a version that comes before the release of that number. Others are a vendor's builds
of the release: ``4.2.0-amzn-1``."""


def spark_line(release: str) -> str:
    """Return the line of a Spark release: ``4.1`` of ``4.1.3``.

    Raises Misconfigured for a release that jobs may not run on: of another line than those of
    `FIRST`, earlier than the first of its line, or a preview, candidate or snapshot.
    """
    found = _RELEASE.match(release)
    line = "" if found is None else found[1]
    if found is None or line not in FIRST:
        raise Misconfigured(
            f"Spark {release} was never run with this version of Tideline", hint=_remedy()
        )
    if _BEFORE_RELEASE.search(found[3]):
        raise Misconfigured(
            f"Spark {release} is refused: it comes before the release of that number",
            hint=_remedy(),
        )
    if int(found[2]) < int(FIRST[line].rpartition(".")[2]):
        raise Misconfigured(
            f"Spark {release} is refused: releases of {line} before {FIRST[line]} can merge wrong"
            " values without an error, or were never run",
            hint=_remedy(),
        )
    return line


def installed_spark() -> str:
    """Return the release of the Spark that ``spark-submit`` runs here; Misconfigured without one.

    Its jar names it: ``SPARK_HOME`` may be another Spark than the installed package.
    """
    home = spark_home()
    jars = [] if home is None else sorted((home / "jars").glob("spark-core_*.jar"))
    for jar in jars:
        if found := _CORE.fullmatch(jar.name):
            return found[1]
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise Misconfigured(
            "no Spark is installed here", hint="pip install 'tideline-cdc[spark]'"
        ) from None


def _remedy() -> str:
    wanted = ", ".join(f"{first} or a later {line}" for line, first in FIRST.items())
    return f"use Spark {wanted}; where pip installs it, pyspark and pyspark-client have one version"
