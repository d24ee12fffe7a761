"""The settings of single tables: how each is kept in the warehouse, and how it may change there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tideline.contract.modes import Mode
from tideline.contract.patterns import matches
from tideline.contract.schema import TableId
from tideline.settings.base import Effect, Seconds, Section
from tideline.settings.catalog import CatalogNameText

Reaction = Literal["apply", "park", "ignore"]
"""Reactions to a change of a table's columns: the warehouse's table follows; it stops before the
change, its parts are kept, and it waits for an operator to decide; it stays as it is."""


class OnChange(Section):
    """A reaction for each kind of change."""

    effect = Effect.LIVE

    add: Reaction = "apply"
    """A new column."""
    drop: Reaction = "apply"
    """A column that is gone."""
    rename: Reaction = "apply"
    """A column that was renamed."""
    widen: Reaction = "apply"
    """A type that holds all old values and more."""
    retype: Literal["apply", "park"] = "park"
    """A type that cannot hold the old values: ``apply`` dumps the table and restarts it."""
    key: Literal["apply", "park"] = "park"
    """Other key columns: ``apply`` dumps the table and restarts it."""


class TableSettings(Section):
    """The settings of a table."""

    effect = Effect.LIVE

    mode: Mode = Mode.CURRENT
    """A target keeps the mode that it was made in: ``tideline rebuild`` switches it."""
    key: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Columns that identify rows where the source declares no key: unique, and never NULL."""
    keyless: Literal["refuse", "counted"] = "refuse"
    """A table without a key, in a mode that needs one: quarantined; or equal rows are counted."""
    before_image: Literal["key", "full"] = "key"
    """The part of the row before an update or delete that segments hold: a changed key, or all
    columns as far as the source's log has them."""
    dropped_columns: Literal["keep", "drop"] = "keep"
    """A column that the source dropped: it stays in the warehouse, NULL; or goes there too."""
    on_change: OnChange = OnChange()
    deletion_vectors: bool = True
    """``false``: files without deletion vectors, for readers that do not know them; a merge
    rewrites every file in which it changes a row. ``tideline rebuild`` switches a target that is
    there.
    """
    slo_within_s: Seconds | None = None
    """The value in place of ``slo.within_s``."""
    catalog_name: CatalogNameText | None = None
    """The table's name in the catalog, as ``schema.table``, in place of the one that the templates
    of ``warehouse.catalog`` make."""


def settings_of(table: TableId, entries: Mapping[str, TableSettings]) -> TableSettings:
    """Combine the matching entries, later ones over earlier ones, key by key."""
    found: dict[str, Any] = {}
    reactions: dict[str, Any] = {}
    for pattern, entry in entries.items():
        if matches(table, (pattern,), ()):
            found |= entry.model_dump(exclude_unset=True, exclude={"on_change"})
            reactions |= entry.on_change.model_dump(exclude_unset=True)
    return TableSettings(**found, on_change=OnChange(**reactions))
