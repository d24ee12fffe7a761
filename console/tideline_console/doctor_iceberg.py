"""Checks the catalog of Iceberg tables: client, address, credentials, permissions, and whether the
jars fit Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tideline.cluster_spark import is_cluster
from tideline.contract.target_url import ICEBERG
from tideline.settings import Settings
from tideline.settings.addresses import is_loopback, split_url
from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.iceberg.jars import BUILDS, iceberg_jar_set
from tideline.warehouse.iceberg.probe import probe_catalog
from tideline_capture.sources.finding import Finding, ok, warning
from tideline_console.checks import attempt

_RUNTIME = re.compile(r"iceberg-spark-runtime-(\d+\.\d+)_")


def check_iceberg(settings: Settings, *, grave: bool = False) -> Iterator[Finding]:
    """Yield the findings; none for a pipeline that can have no Iceberg tables. With ``grave``
    what keeps merges from running is an error: capture does without.

    Changes nothing but a namespace, which it makes and removes.
    """
    if ICEBERG not in settings.formats_held:
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
        fix = (
            "use a database server's or a REST catalog where more than one machine merges or plans"
        )
        yield warning("iceberg_file", text, fix)


def _encryption(settings: Settings) -> Iterator[Finding]:
    """Check by the settings alone, whatever answers at the addresses."""
    iceberg = settings.warehouse.iceberg
    if not iceberg.tls_is_verified:
        text = "TLS to the catalog is not verified, or not used: its secret can be read on the way"
        fix = "write https:// in warehouse.iceberg.url, or behind a database's url"
        fix += " ?sslmode=verify-full&sslrootcert=/path/of/ca.pem"
        yield warning("iceberg_encryption", text, fix)
    parts = split_url(iceberg.oauth2_url or "https://unset")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        text = "the secret of the catalog's client goes there unencrypted"
        yield warning("iceberg_encryption", text, "write https:// in warehouse.iceberg.oauth2_url")


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
