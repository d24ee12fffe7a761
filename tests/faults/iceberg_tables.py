"""Iceberg tables of a fault test, read without Spark: as they are, and as a death has left them.

The catalog is a file in SQLite below the test's root, in a folder of its own, so that an image of
the root has it too. Metadata names files by their whole paths: an image is read in the root's
place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.fixtures.iceberg import use_catalog, with_catalog
from tideline.settings import Warehouse
from tideline.warehouse.iceberg import client
from tideline.warehouse.iceberg.client import find_table
from tideline.warehouse.iceberg.names import identifier_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "catalog"
"""The folder of the catalog below the root."""


def iceberg_in(spark: SparkSession, root: Path, place: Warehouse | None = None) -> Warehouse:
    """A warehouse of Iceberg tables below ``root``, or in S3 at ``place``, which ``spark``
    reaches."""
    file = root / CATALOG / "catalog.db"
    file.parent.mkdir(parents=True)
    made = with_catalog(place or Warehouse(url=root.as_uri()), file)
    use_catalog(spark, made)
    return made


def rows_of(place: Warehouse, url: str) -> list[dict[str, Any]]:
    """All rows of the table at ``url``; none where no table is."""
    table = find_table(place, identifier_of(url))
    return [] if table is None else list(table.scan().to_arrow().to_pylist())


def files_of(place: Warehouse, url: str) -> set[str]:
    """The names of the files that any snapshot of the table at ``url`` has.

    pyiceberg's own list of them fails on a table that was partitioned by a column that is gone.
    """
    table = find_table(place, identifier_of(url))
    assert table is not None, url
    paths = {
        entry.data_file.file_path
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    }
    return {urlsplit(one).path.rpartition("/")[2] for one in paths}


@contextmanager
def in_place_of(root: Path, image: Path) -> Iterator[None]:
    """Have the folder ``image`` lie where ``root`` does."""
    aside = root.with_name(f"{root.name}-aside")
    root.rename(aside)
    image.rename(root)
    forget_catalogs()
    try:
        yield
    finally:
        root.rename(image)
        aside.rename(root)
        forget_catalogs()


def forget_catalogs() -> None:
    """Have this process open catalogs again: it would go on with files that are gone."""
    for one in client._OPEN.values():
        one.engine.dispose()  # type: ignore[attr-defined]
