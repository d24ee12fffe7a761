"""What is chosen table by table: how it is kept in the warehouse, and how it may change there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tideline.contract.modes import Mode
from tideline.contract.patterns import matches
from tideline.contract.schema import TableId
from tideline.settings.base import Effect, Seconds, Section

Reaction = Literal["apply", "park", "ignore"]
"""To a change of a table's columns: the warehouse's table follows; it stops before the change, its
parts are kept, and it waits for somebody to decide; it stays as it is."""


class OnChange(Section):
    """A reaction for each kind of change."""

    effect = Effect.LIVE

    add: Reaction = "apply"
    """A new column."""
    drop: Reaction = "apply"
    """A column that is gone."""
    rename: Reaction = "apply"
    """A column that is called otherwise."""
    widen: Reaction = "apply"
    """A type that holds all old values and more."""
    retype: Literal["apply", "park"] = "park"
    """A type that cannot hold the old values: ``apply`` dumps the table and starts it anew."""
    key: Literal["apply", "park"] = "park"
    """Other key columns: ``apply`` dumps the table and starts it anew."""


class TableSettings(Section):
    """What holds for a table."""

    effect = Effect.LIVE

    mode: Mode = Mode.CURRENT
    """A target keeps the mode that it was made in: ``tideline rebuild`` switches it."""
    key: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Columns that tell rows apart where the source declares no key: unique, and never NULL."""
    keyless: Literal["refuse", "counted"] = "refuse"
    """A table without a key, in a mode that needs one: parked; or equal rows are counted."""
    before_image: Literal["key", "full"] = "key"
    """What segments hold of the row before an update or delete: a changed key, or all columns as
    far as the source's log has them."""
    dropped_columns: Literal["keep", "drop"] = "keep"
    """A column that the source dropped: it stays in the warehouse, NULL; or goes there too."""
    on_change: OnChange = OnChange()
    deletion_vectors: bool = True
    """``false``: files without deletion vectors, for readers that do not know them; a merge writes
    every file anew that it changes a row of. ``tideline rebuild`` switches a target that is there.
    """
    slo_within_s: Seconds | None = None
    """In place of ``slo.within_s``."""


def settings_of(table: TableId, entries: Mapping[str, TableSettings]) -> TableSettings:
    """What the matching entries say, later ones over earlier ones, key by key."""
    found: dict[str, Any] = {}
    reactions: dict[str, Any] = {}
    for pattern, entry in entries.items():
        if matches(table, (pattern,), ()):
            found |= entry.model_dump(exclude_unset=True, exclude={"on_change"})
            reactions |= entry.on_change.model_dump(exclude_unset=True)
    return TableSettings(**found, on_change=OnChange(**reactions))
