"""The protocol of a catalog: entries for tables whose content, columns and history lie elsewhere.

An entry is a name for an address. The table's log stays the truth; what an entry repeats of it
(columns, comments) is for people and for tools that do not read logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tideline.catalog.names import CatalogName
from tideline.contract.target_properties import Owner, owner_of, owner_properties
from tideline.warehouse.base import TableColumn

FINGERPRINT_PROPERTY = "tideline.fingerprint"
"""The property of an entry that stands for all that was registered with it."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as it is to be registered: its address as a percent-encoded url, its ``format``,
    whose it is, its columns and its comment."""

    location: str
    format: str
    owner: Owner
    columns: tuple[TableColumn, ...]
    comment: str = ""

    @property
    def fingerprint(self) -> str:
        """16 hex digits over all of it."""
        facts = (
            self.location,
            self.format,
            self.owner,
            [(one.name, one.type, one.nullable, one.comment) for one in self.columns],
            self.comment,
        )
        return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()[:16]

    def properties(self) -> dict[str, str]:
        """Return the properties by which the entry is known as ours, and as this one."""
        return {**owner_properties(self.owner), FINGERPRINT_PROPERTY: self.fingerprint}


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """The content of an entry. ``location`` is the address as a reader finds it; "" for
    what is no table of files, such as a view. ``owner`` is empty for an entry of others."""

    location: str
    owner: Owner
    fingerprint: str


def entry_of(location: str | None, properties: Mapping[str, str]) -> CatalogEntry:
    """Make the entry with these properties."""
    fingerprint = properties.get(FINGERPRINT_PROPERTY) or ""
    return CatalogEntry(location or "", owner_of(properties), fingerprint)


class Catalog(Protocol):
    """A connection to a catalog; used in one thread.

    Every call raises Unavailable where the catalog does not answer, and Misconfigured where it
    refuses: a login, a permission, a name.
    """

    def check(self) -> str:
        """Return in words what was reached, for `tideline doctor`. Changes nothing."""
        ...

    def find(self, names: Iterable[CatalogName]) -> Mapping[CatalogName, CatalogEntry]:
        """Return the entries that exist among ``names``."""
        ...

    def create(self, name: CatalogName, table: CatalogTable) -> bool:
        """Make an entry, and its schema where that is missing. Returns False where something has
        the name by now: it is left as it is."""
        ...

    def update(self, name: CatalogName, table: CatalogTable) -> None:
        """Make the existing entry, which is ours, as ``table``."""
        ...

    def drop(self, name: CatalogName) -> None:
        """Remove the entry, which is ours, and nothing of the table; done where there is none."""
        ...

    def close(self) -> None:
        """End the connection. Raises nothing."""
        ...


def same_place(one: str, other: str) -> bool:
    """Return whether two addresses, both as readers find them, are the same: ``file:/a`` and
    ``file:///a/``, ``s3://b/c`` and ``s3a://b/c``."""
    return _plain(one) == _plain(other)


def _plain(location: str) -> str:
    scheme, colon, rest = location.rstrip("/").partition(":")
    if not colon:
        return location.rstrip("/")
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower())
    return f"{scheme}:{rest.lstrip('/')}"
