"""The places of targets as people are shown them: folders, and names in a catalog or a project."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tideline.contract.target_url import BIGQUERY, ICEBERG, table_format_of
from tideline.warehouse.bigquery.names import name_of
from tideline.warehouse.iceberg.names import identifier_of


class Place(NamedTuple):
    """A target's place: the ``kind`` of it, a sentence of the ``warehouse``, its ``name`` there."""

    kind: str
    warehouse: str
    name: str


def place_of(target: str) -> Place:
    """Return the place of the target at a url."""
    if table_format_of(target) == ICEBERG:
        where = target.partition("://")[2].partition("/")[0]
        name = ".".join(identifier_of(target))
        return Place("name", f"warehouse {ICEBERG}://{where}: each table by its name there", name)
    if table_format_of(target) == BIGQUERY:
        project, dataset, table = name_of(target)
        where = f"warehouse {BIGQUERY}://{project}: each table by its dataset and name there"
        return Place("name", where, f"{dataset}.{table}")
    warehouse, schema, table = target.rsplit("/", 2)
    return Place("folder", f"warehouse {warehouse}: each table in its folder", f"{schema}/{table}")


def address_of(target: str) -> str:
    """Return where a reader finds the target: a folder's url, or a name of a table."""
    if table_format_of(target) == ICEBERG:
        return ".".join((target.partition("://")[2].partition("/")[0], *identifier_of(target)))
    return str(name_of(target)) if table_format_of(target) == BIGQUERY else target


def heading(places: Collection[Place]) -> str:
    """Return the heading of a column with the names of ``places``."""
    return " or ".join(sorted({one.kind for one in places})) or "folder"
