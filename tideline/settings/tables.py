"""The settings of single tables: how each is kept in the warehouse, and how it may change there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from tideline.contract.layout_rules import format_problem
from tideline.contract.modes import Mode
from tideline.contract.partition_fields import parse_field
from tideline.contract.patterns import matches
from tideline.contract.readers import Feature, check_readers, lacking
from tideline.contract.schema import TableId
from tideline.contract.table_layout import CLUSTERING_COLUMNS_MAX, TableLayout
from tideline.contract.target_url import TableFormatName
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
    partition_by: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    """Columns whose values divide the files into folders: few values each, best of the key. Of an
    Iceberg table also transforms: ``bucket(16, id)``, ``truncate(10, name)``, ``year(t)``,
    ``month(t)``, ``day(t)``, ``hour(t)``. ``tideline rebuild`` gives a target that is there another
    layout ([LAYOUT](LAYOUT.md))."""
    cluster_by: Annotated[tuple[str, ...], Field(max_length=CLUSTERING_COLUMNS_MAX)] = ()
    """Columns by which ``tideline maintain`` keeps similar rows in the same files; of an Iceberg
    table its sort order. Not together with ``partition_by`` in a Delta table: an entry with one of
    them leaves out what earlier ones have of both."""
    readers: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Readers of the table: what one of them misreads is not switched on, and a change of columns
    that would need it waits ([LAYOUT](LAYOUT.md#readers))."""
    slo_within_s: Seconds | None = None
    """The value in place of ``slo.within_s``."""
    format: TableFormatName | None = None
    """The table format, in place of ``warehouse.format``; of a table that is there,
    ``tideline rebuild --to`` [changes](MODES.md#moving-a-table) it."""
    writes: Literal["merge", "stream"] = "merge"
    """How rows come to a BigQuery table: by a MERGE, or through the Storage Write API's change
    stream ([BIGQUERY](BIGQUERY.md#streamed-tables)). ``tideline rebuild`` switches a target that is
    there."""
    catalog_name: CatalogNameText | None = None
    """The table's name in the catalog, as ``schema.table``, in place of the one that the templates
    of ``warehouse.catalog`` make."""

    @field_validator("partition_by")
    @classmethod
    def _parsed_fields(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        fields = [parse_field(text) for text in texts]
        _check_once([one.column for one in fields])
        return tuple(map(str, fields))

    @field_validator("cluster_by")
    @classmethod
    def _named_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        _check_once(names)
        return names

    @field_validator("readers")
    @classmethod
    def _known_readers(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        check_readers(names)
        return names

    @property
    def layout(self) -> TableLayout:
        """Return the layout of a target that is made."""
        return TableLayout(self.partition_by, self.cluster_by, self.writes == "stream")

    @property
    def vectors(self) -> bool:
        """Return whether a target that is made may have deletion vectors: its readers may lack
        them."""
        return self.deletion_vectors and Feature.DELETION_VECTORS not in lacking(self.readers)


_LAYOUTS = ("partition_by", "cluster_by")


def _check_once(names: Sequence[str]) -> None:
    folded = [name.lower() for name in names]
    if "" in folded or len(set(folded)) < len(folded):
        raise ValueError("must name each column once")


def check_layouts(entries: Mapping[str, TableSettings], default_format: str) -> None:
    """Raise ValueError for a layout that no table of its entry can have: each of them is of a
    format that lacks it. What depends on several entries is found where the table is known."""
    formats = {default_format, *(one.format for one in entries.values() if one.format)}
    for pattern, entry in entries.items():
        problems = [
            format_problem(entry.layout, one)
            for one in ({entry.format} if entry.format else formats)
        ]
        if problems[0] is not None and all(problems):
            raise ValueError(f"{pattern}: {problems[0]}")


def settings_of(table: TableId, entries: Mapping[str, TableSettings]) -> TableSettings:
    """Combine the matching entries, later ones over earlier ones, key by key."""
    found: dict[str, Any] = {}
    reactions: dict[str, Any] = {}
    for pattern, entry in entries.items():
        if matches(table, (pattern,), ()):
            given = entry.model_dump(exclude_unset=True, exclude={"on_change"})
            if any(given.get(key) for key in _LAYOUTS):  # One of them replaces both.
                found = {key: value for key, value in found.items() if key not in _LAYOUTS}
            found |= given
            reactions |= entry.on_change.model_dump(exclude_unset=True)
    return TableSettings(**found, on_change=OnChange(**reactions))
