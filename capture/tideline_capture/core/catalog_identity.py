"""The source's identity of a table, in the text form that the open state holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class CatalogIdentity:
    """A table's identity.

    See `events.TableFacts` for the fields; ``columns`` is its digest over them, ``schema`` a
    fingerprint, or `NO_SCHEMA`.
    """

    oid: str
    storage: str
    columns: str
    members: str
    membership: str
    schema: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a stored text."""
        return cls(*text.split("/"))

    @property
    def text(self) -> str:
        return "/".join(
            (self.oid, self.storage, self.columns, self.members, self.membership, self.schema)
        )

    @property
    def fingerprint(self) -> str | None:
        """Return the fingerprint of the schema that the catalog showed, if it could be read."""
        return None if self.schema == NO_SCHEMA else self.schema

    def with_columns_of(self, now: CatalogIdentity) -> CatalogIdentity:
        """Adopt columns and schema that are known to have followed since."""
        return replace(self, columns=now.columns, schema=now.schema)


NO_SCHEMA = "-"
