"""``python -m devtools.services.prepare [--no-archive] [--with mariadb|mysql|bigquery|…]``: fetch
what is missing.

Java (when there is none that Spark can use), Delta's jars, the archive that makes Spark start
sooner and, where root starts PostgreSQL as another user, a copy of its binaries that this user can
reach; if asked for, MariaDB, MySQL 8.0 and 9, BigQuery's emulator, Chromium. Says nothing when all
is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence

from devtools.services.bigquery import emulator_is_there, emulator_root
from devtools.services.chromium import ensure_chromium, find_chromium
from devtools.services.java import ensure_java
from devtools.services.mariadb import mariadb_is_there, mariadb_root
from devtools.services.mysql import mysql8_root, mysql9_root, mysql_is_there
from devtools.services.postgres import binaries
from devtools.services.process import unprivileged_account
from tideline.contract.errors import TidelineError, Unavailable
from tideline.java import find_java
from tideline.spark_versions import installed_spark, spark_line
from tideline.warehouse.delta.jars import delta_jar_set
from tideline.warehouse.job_jars import every_jar
from tideline.warehouse.s3_jars import find_s3_jar_set
from tideline_spark.class_archive import archive_is_there, make_archive

EXTRAS = ("mariadb", "mysql", "bigquery", "chromium")


def prepare(extras: Collection[str] = (), *, archive: bool = True) -> None:
    """Fetch the base and ``extras`` (of `EXTRAS`); without ``archive``, no archive is made.

    Raises Misconfigured or Unavailable, with what the operator can do. Not every machine can have
    a MySQL or a Chromium: a missing one is reported, and its tests are skipped.
    """
    if find_java() is None:
        print("setup: Java, this takes a minute", flush=True)
    ensure_java()
    for jars in (delta_jar_set(spark_line(installed_spark())), find_s3_jar_set()):
        if jars is not None and not jars.folder.is_dir():
            print(f"setup: {jars.title}", flush=True)
    every_jar()
    if archive:
        ensure_archive()
    binaries(unprivileged_account())
    if "mariadb" in extras:
        _fetch("MariaDB", mariadb_is_there(), mariadb_root)
    if "mysql" in extras:
        _try("MySQL 8.0", mysql_is_there("8.0"), mysql8_root)
        _try("MySQL 9", mysql_is_there("9"), mysql9_root)
    if "bigquery" in extras:
        _fetch("BigQuery's emulator", emulator_is_there(), emulator_root)
    if "chromium" in extras:
        _try("Chromium", find_chromium() is not None, ensure_chromium)


def ensure_archive() -> None:
    """Make the archive; on failure Spark starts without it."""
    if not archive_is_there():
        print("setup: an archive of Spark's classes, this takes a minute", flush=True)
    try:
        make_archive()
    except Unavailable as error:
        print(f"setup: Spark starts as slowly as before: {error}", flush=True)


def _try(name: str, is_there: bool, fetch: Callable[[], object]) -> None:
    try:
        _fetch(name, is_there, fetch)
    except Unavailable as error:
        print(f"setup: no {name}, its tests will be skipped: {error}", flush=True)


def _fetch(name: str, is_there: bool, fetch: Callable[[], object]) -> None:
    if not is_there:
        print(f"setup: {name}", flush=True)
    fetch()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, or 1 after reporting on standard error what is missing."""
    parser = argparse.ArgumentParser(description="fetch what the machine lacks")
    parser.add_argument(
        "--with", dest="extras", action="append", choices=EXTRAS, default=[], help="fetch it too"
    )
    parser.add_argument(
        "--no-archive", action="store_true", help="make none: few starts of Spark do not pay for it"
    )
    options = parser.parse_args(arguments)
    try:
        prepare(options.extras, archive=not options.no_archive)
    except TidelineError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
