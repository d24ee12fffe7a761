"""The kinds of catalogs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tideline.catalog.base import Catalog
from tideline.catalog.names import NameRule
from tideline.contract.errors import InvariantBroken, Misconfigured
from tideline.settings import Settings


@dataclass(frozen=True, slots=True)
class CatalogDriver:
    """A kind of catalog: the names that it permits, what connects to it, and the extra with the
    packages that this needs."""

    rule: NameRule
    connect: Callable[[Settings], Catalog]
    extra: str = ""


def _hive(settings: Settings) -> Catalog:
    from tideline.catalog.hive import HiveCatalog  # an extra

    return HiveCatalog(settings)


def _unity(settings: Settings) -> Catalog:
    from tideline.catalog.unity import UnityCatalog  # heavy: ssl

    return UnityCatalog(settings)


def _glue(settings: Settings) -> Catalog:
    from tideline.catalog.glue import GlueCatalog  # an extra

    return GlueCatalog(settings)


_PLAIN = re.compile(r"[a-z0-9_]+")
_PLAIN_WORDS = "ASCII letters, digits and _"
KINDS: Mapping[str, CatalogDriver] = {
    "hive": CatalogDriver(
        NameRule(_PLAIN, 128, 128, f"{_PLAIN_WORDS}, 128 of them"), _hive, "hive"
    ),
    "unity": CatalogDriver(
        NameRule(
            re.compile(r"[^./\s\x00-\x1f\x7f]+"), 255, 255, "255 characters but . / and spaces"
        ),
        _unity,
    ),
    "glue": CatalogDriver(NameRule(_PLAIN, 255, 255, f"{_PLAIN_WORDS}, 255 of them"), _glue, "aws"),
}


def kind_of(settings: Settings) -> CatalogDriver | None:
    """Return the kind of the pipeline's catalog; None without one."""
    kind = settings.warehouse.catalog.kind
    return None if kind is None else KINDS[kind]


@contextmanager
def open_catalog(settings: Settings) -> Iterator[Catalog]:
    """Connect to the pipeline's catalog, and close it at the end.

    Raises Misconfigured where a package is missing, or a secret cannot be read.
    """
    found = kind_of(settings)
    if found is None:
        raise InvariantBroken("a pipeline without a catalog opens one")
    try:
        catalog = found.connect(settings)
    except ModuleNotFoundError as error:
        raise Misconfigured(
            f"the catalog needs the Python package {error.name}, which is not installed",
            hint=f"pip install 'tideline-cdc[{found.extra}]'",
        ) from None
    try:
        yield catalog
    finally:
        catalog.close()
