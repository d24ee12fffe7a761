"""The table formats that the planner reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tideline.contract.target_url import table_format_of
from tideline.settings import Settings, Warehouse
from tideline.warehouse.access import storage_options, trust
from tideline.warehouse.base import TableReader
from tideline.warehouse.bigquery.reader import open_bigquery
from tideline.warehouse.bigquery.removal import owned_targets, remove_bigquery, remove_target
from tideline.warehouse.delta.log import LOG_FOLDER
from tideline.warehouse.delta.reader import open_delta
from tideline.warehouse.iceberg.client import owned_tables, remove_table
from tideline.warehouse.iceberg.names import identifier_of
from tideline.warehouse.iceberg.reader import open_iceberg

READERS: dict[str, Callable[[str, Warehouse], TableReader | None]] = {
    "delta": lambda url, place: open_delta(url, storage_options(place)),
    "iceberg": open_iceberg,
    "bigquery": open_bigquery,
}
"""The function that opens a table of each format, from its url and the warehouse that it is in."""
REMOVERS: dict[str, Callable[[str, Warehouse], None]] = {
    "iceberg": lambda url, place: remove_table(place, identifier_of(url)),
    "bigquery": remove_bigquery,
}
"""The function that removes a table by its url, of each format whose tables have a name; those of
any other are removed with their folders."""
LOG_FOLDERS = (LOG_FOLDER,)
"""The folders, within a table's own, that hold the logs of the formats."""


def other_tables(
    settings: Settings, incarnation: str | None
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the pipeline's tables that a catalog or BigQuery names, not a folder: what is removed,
    in words, and what removes it. Of this ``incarnation`` where it is known.

    Raises Unavailable where one of both cannot be read, Misconfigured where it refuses.
    """
    place = settings.warehouse_storage
    if place.iceberg.catalog is not None:
        for name in owned_tables(place, settings.pipeline, incarnation):
            yield f"the Iceberg table {'.'.join(name)}", partial(remove_table, place, name)
    if place.bigquery.project is not None:
        for owned in owned_targets(place, settings.pipeline, incarnation):
            text = f"the BigQuery table {owned.name}, its log"
            text += f" and {len(owned.staged)} tables of staged rows" if owned.staged else ""
            yield text, partial(remove_target, place, owned)


def open_reader(url: str, place: Warehouse) -> TableReader | None:
    """Return the newest version of the table at ``url`` in the warehouse ``place``; None without
    one.

    Raises Unavailable when something is there that cannot be read.
    """
    trust(place)
    return READERS[table_format_of(url)](url, place)
