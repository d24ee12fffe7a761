"""A version of an Iceberg table, from its metadata."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import types

from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.state import TargetSnapshot, TargetVersion

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
        newest = None if self.metadata is None else self.metadata.current
        return 0 if newest is None else newest.count("total-files-size")

    @property
    def properties(self) -> Mapping[str, str]:
        """See `TargetVersion`."""
        return {} if self.metadata is None else self.metadata.properties

    def snapshot(self) -> TargetSnapshot:
        """See `TargetVersion`."""
        applied = {} if self.metadata is None else self.metadata.applied()
        return TargetSnapshot(self.number, applied, self.properties, self._schema)
