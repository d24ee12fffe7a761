"""Checks the catalog of Iceberg tables: client, address, credentials, permissions, and whether the
jars fit Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tideline.cluster_spark import is_cluster
from tideline.contract.target_url import ICEBERG
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, query_of, split_url
from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.iceberg.jars import BUILDS, iceberg_jar_set
from tideline.warehouse.iceberg.probe import probe_catalog
from tideline_capture.sources.finding import Finding, ok, warning
from tideline_console.checks import attempt

_RUNTIME = re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_")
_VERIFIED = ("verify-ca", "verify-full")


def check_iceberg(settings: Settings, *, grave: bool = False) -> Iterator[Finding]:
    """Yield the findings; none for a pipeline without Iceberg tables. With ``grave`` what keeps
    merges from running is an error: capture does without.

    Changes nothing but a namespace, which it makes and removes.
    """
    if ICEBERG not in settings.formats:
        return
    yield from _one_machine(settings)
    yield from _encryption(settings)
    yield from attempt("iceberg", lambda: _reached(settings), grave=grave)
    yield from attempt("iceberg_jars", lambda: list(_check_runtime(settings)), grave=grave)


def _reached(settings: Settings) -> list[Finding]:
    where = probe_catalog(settings.warehouse_storage)
    return [ok("iceberg", f"the catalog at {where} lets this client make namespaces")]


def _one_machine(settings: Settings) -> Iterator[Finding]:
    """Check by the settings alone: whether others plan and merge elsewhere is not to be seen."""
    elsewhere = is_cluster(settings.merge.master) or settings.warehouse.in_object_store
    if settings.warehouse.iceberg.file is not None and elsewhere:
        text = (
            "the catalog of Iceberg tables is a file: merges, plans and this must all run on the"
            " machine that has it; another one would make tables of its own"
        )
        fix = "use a PostgreSQL or a REST catalog where more than one machine merges or plans"
        yield warning("iceberg_file", text, fix)


def _encryption(settings: Settings) -> Iterator[Finding]:
    """Check by the settings alone, whatever answers at the addresses."""
    iceberg = settings.warehouse.iceberg
    key = "warehouse.iceberg"
    for name, url in (("url", iceberg.url), ("oauth2_url", iceberg.oauth2_url)):
        parts = split_url(url or "https://unset")
        if is_loopback(parts.hostname or ""):
            continue
        if parts.scheme == "http":
            text = "the secret of the catalog's client goes there unencrypted"
            yield warning("iceberg_encryption", text, f"write https:// in {key}.{name}")
        if parts.scheme == "postgresql" and query_of(parts).get("sslmode") not in _VERIFIED:
            text = "TLS to the catalog's database is not verified, and may not be used at all"
            fix = f"add ?sslmode=verify-full&sslrootcert=/path/of/ca.pem to {key}.{name}"
            yield warning("iceberg_encryption", text, fix)


def _check_runtime(settings: Settings) -> Iterator[Finding]:
    """Check Iceberg's runtime against the installed Spark; nothing is fetched. What classes the
    named jars have is for `check_named_jars`."""
    line = spark_line(installed_spark())
    named = (settings.merge.jars or "").split(",")
    for jar in named:
        found = _RUNTIME.match(PurePath(jar).name)
        if found is not None and found[1] != line:
            text = f"{PurePath(jar).name} is for Spark {found[1]}, and Spark {line} is installed"
            fix = f"name the one for {line} in merge.jars; there is one for {' and '.join(BUILDS)}"
            yield warning("iceberg_jars", text, fix)
            return
    iceberg_jar_set(line)
    yield ok("iceberg_jars", f"Iceberg has a runtime for Spark {line}")
