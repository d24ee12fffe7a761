"""Chooses the database by its kind's name or its url's scheme; imports a driver only on use.

Only this module lists all kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from urllib.parse import urlsplit

from devtools.demo.databases.base import NAMES, ShopDatabase, Size
from tideline.contract.errors import Misconfigured

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "postgres": "devtools.demo.databases.postgres",
        "mariadb": "devtools.demo.databases.mariadb",
    }
)
"""The module of each kind; its ``DATABASE_KIND`` is the `ShopDatabase`."""

_SCHEMES = {"postgresql": "postgres", "postgres": "postgres", "mariadb": "mariadb"}


def of_kind(kind: str) -> ShopDatabase:
    """Return the database of ``make demo SOURCE=kind``; Misconfigured when there is none."""
    if kind not in KINDS:
        raise Misconfigured(
            f"the demo has no source {kind!r}", hint=f"SOURCE is one of {', '.join(KINDS)}"
        )
    database: ShopDatabase = import_module(KINDS[kind]).DATABASE_KIND
    return database


def of_url(url: str) -> ShopDatabase:
    """Return the database that ``url`` is an address of."""
    return of_kind(_SCHEMES.get(urlsplit(url).scheme, ""))


def tables(database: ShopDatabase) -> tuple[str, ...]:
    """Return the shop's tables under their full names."""
    return tuple(f"{database.schema}.{name}" for name in NAMES)


def create_shop(url: str, size: Size | None = None) -> dict[str, int]:
    """Create tables and rows in the empty database at ``url``; return rows per table."""
    of_url(url).create_shop(url, size or Size())
    return count_rows(url)


def count_rows(url: str) -> dict[str, int]:
    """Count the rows of every table of the shop."""
    database = of_url(url)
    connection = database.connect(url, "shop counts")
    try:
        with connection.cursor() as cursor:
            counts: dict[str, int] = {}
            for table in tables(database):
                cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608  our own constants
                (counts[table],) = cursor.fetchone() or (0,)
            return counts
    finally:
        connection.close()
