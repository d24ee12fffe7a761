"""The names of a pipeline's tables in the catalog, and the tables that cannot have theirs.

A name is the settings' template filled in, or what the table's own section says; no character of it
is ever replaced. Catalogs compare names without regard to case and store them in lower case, so
capitals are all that is not kept: two tables whose names differ in nothing else have the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tideline.contract.printable import toml_text
from tideline.contract.schema import parse_table
from tideline.settings import Settings


@dataclass(frozen=True, slots=True, order=True)
class CatalogName:
    """A table's name in a catalog, in lower case."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class NameRule:
    """The names that a catalog permits: those that ``pattern`` matches, up to so many characters;
    ``words`` describes both."""

    pattern: re.Pattern[str]
    schema_max: int
    table_max: int
    words: str

    def permits(self, name: CatalogName) -> bool:
        """Return whether a table may have this name."""
        return (
            self.pattern.fullmatch(name.schema) is not None
            and self.pattern.fullmatch(name.table) is not None
            and len(name.schema) <= self.schema_max
            and len(name.table) <= self.table_max
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The names by table, and why the other tables have none."""

    names: Mapping[str, CatalogName] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def name_of(settings: Settings, table: str) -> CatalogName:
    """Return the name that the settings give ``table``, whether it is permitted or not."""
    found = parse_table(table)
    chosen = settings.of_table(found).catalog_name
    if chosen is not None:
        schema, _, name = chosen.partition(".")
        return CatalogName(schema.lower(), name.lower())
    given = {"pipeline": settings.pipeline, "schema": found.schema, "table": found.name}
    catalog = settings.warehouse.catalog
    schema, name = (one.format_map(given) for one in (catalog.schema_name, catalog.table_name))
    return CatalogName(schema.lower(), name.lower())


def names_of(settings: Settings, tables: Iterable[str], rule: NameRule) -> Names:
    """Return the names of ``tables``, all of the pipeline's: of two with the same name neither has
    it."""
    wanted = {table: name_of(settings, table) for table in tables}
    shared = defaultdict[CatalogName, list[str]](list)
    for table, name in wanted.items():
        shared[name].append(table)
    names: dict[str, CatalogName] = {}
    refused: dict[str, str] = {}
    for table, name in sorted(wanted.items()):
        others = [one for one in shared[name] if one != table]
        if not rule.permits(name):
            refused[table] = (
                f"it would be {name} in the catalog, which permits {rule.words}; {_remedy(table)}"
            )
        elif others:
            listed = ", ".join(sorted(others))
            refused[table] = (
                f"it would be {name} in the catalog, as {listed} would; {_remedy(table)}"
            )
        else:
            names[table] = name
    return Names(names, refused)


def _remedy(table: str) -> str:
    """Return how a table is given another name."""
    return f"give it another: [tables.{toml_text(table)}] catalog_name = 'schema.table'"
