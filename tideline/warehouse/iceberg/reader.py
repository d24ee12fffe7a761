"""Reads an Iceberg table's metadata through pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tideline.contract.external_commits import COMMITS_MAX, TableCommit
from tideline.contract.readers import Feature
from tideline.settings import Warehouse
from tideline.warehouse.base import ColumnType, TableColumn
from tideline.warehouse.iceberg.client import find_table, reading
from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline.warehouse.iceberg.names import identifier_of

_ON_READ = "merge-on-read"
_SPARK_TYPES = {"int": "integer", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""The types that Spark has other names for."""


def open_iceberg(url: str, place: Warehouse) -> IcebergReader | None:
    """Return the newest version of the table at ``url``; None where no table is.

    Raises Unavailable for one that cannot be read, Misconfigured without a catalog or its client.
    """
    with reading(url):
        table = find_table(place, identifier_of(url))
        if table is None:
            return None
        # Its own method refuses format version 3, which it cannot write.
        return IcebergReader(BaseModel.model_dump_json(table.metadata, by_alias=True))


class IcebergReader:
    """See `TableReader`."""

    def __init__(self, metadata: str) -> None:
        self._metadata = IcebergMetadata(metadata)
        self.version = self._metadata.version
        self.properties: Mapping[str, str] = self._metadata.properties
        self.comment = self.properties.get("comment", "")

    @property
    def readers_need_vectors(self) -> bool:
        """See `TableReader`: version 2 of the format has files of deleted positions instead."""
        return self.properties.get("write.merge.mode") == _ON_READ

    @property
    def reader_features(self) -> frozenset[str]:
        """See `TableReader`: nothing else is judged of readers of Iceberg."""
        return frozenset({Feature.DELETION_VECTORS} if self.readers_need_vectors else ())

    @property
    def once_clustered(self) -> bool:
        """See `TableReader`."""
        return False

    def columns(self) -> Sequence[TableColumn]:
        """See `TableReader`."""
        return [
            TableColumn(
                one["name"], _spark_type(one["type"]), not one["required"], one.get("doc") or ""
            )
            for one in self._metadata.schema["fields"]
        ]

    def applied(self, app_id: str) -> int | None:
        """See `TableReader`."""
        return self._metadata.applied().get(app_id)

    def commits(self, most: int = COMMITS_MAX) -> Iterator[TableCommit]:
        """See `TableReader`."""
        return self._metadata.commits(most=most)

    def commit_digest(self, version: int) -> str:
        """See `TableReader`."""
        return self._metadata.digest(version)


def _spark_type(kind: Any) -> ColumnType:
    """Return a type of Iceberg's JSON as Spark's JSON has it."""
    if isinstance(kind, str):
        return _SPARK_TYPES.get(kind, kind).replace(", ", ",")
    if kind["type"] == "list":
        element = _spark_type(kind["element"])
        contains_null = not kind["element-required"]
        return {"type": "array", "elementType": element, "containsNull": contains_null}
    return {
        "type": "map",
        "keyType": _spark_type(kind["key"]),
        "valueType": _spark_type(kind["value"]),
        "valueContainsNull": not kind["value-required"],
    }
