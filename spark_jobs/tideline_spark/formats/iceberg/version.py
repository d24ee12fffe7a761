"""A version of an Iceberg table, from its metadata."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F

from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.state import TargetSnapshot, TargetVersion
from tideline_spark.schemas import column as col

_NO_TABLE = IcebergMetadata('{"format-version": 3}')


class IcebergVersion(TargetVersion):
    """See `TargetVersion`; ``metadata`` is None without a table, and ``schema`` is empty then."""

    def __init__(self, metadata: IcebergMetadata | None, schema: types.StructType) -> None:
        self.metadata = metadata
        self._schema = schema
        found = _NO_TABLE if metadata is None else metadata
        super().__init__(-1 if metadata is None else metadata.version, found.commits)

    def stored_bytes(self) -> int:
        """See `TargetVersion`."""
        return stored_bytes_of(self.metadata)

    @property
    def properties(self) -> Mapping[str, str]:
        """See `TargetVersion`."""
        return {} if self.metadata is None else self.metadata.properties

    def snapshot(self) -> TargetSnapshot:
        """See `TargetVersion`."""
        applied = {} if self.metadata is None else self.metadata.applied()
        return TargetSnapshot(self.number, applied, self.properties, self._schema)


def as_readers_see(
    rows: DataFrame, metadata: IcebergMetadata, schema: types.StructType
) -> DataFrame:
    """Return ``rows`` of the present snapshot in the columns that the table has now, ``schema``:
    others have changed them since, and a snapshot is read in those of its own time."""
    was = metadata.row_names
    held = [
        (col(was[one["id"]]) if one["id"] in was else F.lit(None))
        .cast(field.dataType)
        .alias(field.name)
        for one, field in zip(metadata.schema["fields"], schema.fields, strict=True)
    ]
    return rows.select(*held)


def stored_bytes_of(metadata: IcebergMetadata | None) -> int:
    """Return the bytes of a table's files; 0 without one."""
    newest = None if metadata is None else metadata.current
    return 0 if newest is None else newest.count("total-files-size")
