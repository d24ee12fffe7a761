"""A version of a Delta table, from its log: looked up once, and read on demand.

Only `DeltaVersion.snapshot` needs what Delta must go through the whole log for: the list of files
and the applied numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import types

from tideline.contract.external_commits import TableCommit
from tideline_spark.formats.state import TargetSnapshot, TargetVersion
from tideline_spark.scala_items import scala_items


class DeltaVersion(TargetVersion):
    """See `TargetVersion`; ``found`` is Delta's own snapshot."""

    def __init__(self, found: Any, read: Callable[[int], Iterator[TableCommit]]) -> None:
        super().__init__(int(found.version()), read)
        self._found = found

    def stored_bytes(self) -> int:
        """See `TargetVersion`. Comes from Delta's checksum of the version; where other writers left
        none, Delta goes through the log."""
        if self.number < 0:
            return 0
        checksum = self._found.checksumOpt()
        known = checksum.get().tableSizeBytes() if checksum.isDefined() else None
        return int(self._found.sizeInBytes() if known is None else known)

    @property
    def properties(self) -> dict[str, str]:
        """See `TargetVersion`."""
        return dict(_entries(self._found.metadata().configuration()))

    def partition_columns(self) -> list[str]:
        """Return the names of the columns that the table is partitioned by, in order."""
        return list(scala_items(self._found.metadata().partitionColumns()))

    def snapshot(self) -> TargetSnapshot:
        """See `TargetVersion`."""
        if self.number < 0:
            return TargetSnapshot(-1, {}, {}, types.StructType([]))
        found = self._found
        return TargetSnapshot(
            version=self.number,
            applied={app: int(version) for app, version in _entries(found.transactions())},
            properties=self.properties,
            schema=types.StructType.fromJson(json.loads(found.schema().json())),
        )


def _entries(scala_map: Any) -> Iterator[tuple[str, Any]]:
    entries = scala_map.iterator()
    while entries.hasNext():
        entry = entries.next()
        yield str(entry._1()), entry._2()
