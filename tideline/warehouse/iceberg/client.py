"""The catalog of Iceberg tables through pyiceberg: finds tables, and removes a pipeline's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tideline.contract.errors import Misconfigured, TidelineError
from tideline.contract.target_properties import owner_of
from tideline.contract.target_url import CATALOG
from tideline.settings import Warehouse
from tideline.warehouse.base import unreadable
from tideline.warehouse.iceberg.catalog import reader_properties
from tideline.warehouse.iceberg.leftovers import remove_leftovers
from tideline.warehouse.iceberg.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_OPEN: dict[tuple[tuple[str, str], ...], Catalog] = {}
"""Catalogs by their properties: each is a connection."""


def open_catalog(place: Warehouse) -> Catalog:
    """Return the catalog of ``place``, opened once in a process.

    Raises Misconfigured without a catalog or its client, and what pyiceberg raises.
    """
    try:
        # heavy: only pipelines with Iceberg tables need it
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
    except ImportError:
        raise Misconfigured(
            "pyiceberg is not installed here", hint="pip install 'tideline-cdc[iceberg]'"
        ) from None
    properties = reader_properties(place)
    known = tuple(sorted(properties.items()))
    if known not in _OPEN:
        try:
            _OPEN[known] = load_catalog(CATALOG, **properties)
        except NotInstalledError as error:
            name = getattr(error.__cause__, "name", None) or "a package"
            raise Misconfigured(
                f"the client of Iceberg's catalog needs {name}, which is not installed here",
                hint="pip install 'tideline-cdc[iceberg]'; a database's catalog needs its driver,"
                " too (docs/ICEBERG.md, Catalogs)",
            ) from None
    return _OPEN[known]


def find_table(place: Warehouse, identifier: Identifier) -> Table | None:
    """Return pyiceberg's own table; None without one. Raises as `open_catalog` does."""
    catalog = open_catalog(place)
    # heavy: as above
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def owned_tables(place: Warehouse, pipeline: str, incarnation: str | None) -> Iterator[Identifier]:
    """Yield the tables whose properties name ``pipeline``, and ``incarnation`` where it is known.

    Raises Unavailable where the catalog cannot be read.
    """
    with reading("of the catalog"):
        catalog = open_catalog(place)
        for namespace in catalog.list_namespaces():
            for name in catalog.list_tables(namespace):
                owner = owner_of(catalog.load_table(name).metadata.properties)
                if owner[0] == pipeline and incarnation in (None, owner[1]):
                    yield str(name[0]), str(name[-1])


def remove_table(place: Warehouse, identifier: Identifier) -> None:
    """Remove a table from the catalog, with its files, and folders that are empty then."""
    with reading(".".join(identifier)):
        catalog = open_catalog(place)
        location = catalog.load_table(identifier).location()
        catalog.purge_table(identifier)
    remove_leftovers(location)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Convert what the client raises in the context to Unavailable for the table at ``url``."""
    try:
        yield
    except Misconfigured:
        raise
    except Exception as error:
        if isinstance(error, TidelineError):
            raise
        raise unreadable(url, error, "catalog") from None
