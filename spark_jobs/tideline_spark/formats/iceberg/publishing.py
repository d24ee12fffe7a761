"""Publishes a snapshot of ours that a statement has staged, if nothing of ours came in between.

Iceberg compares the files of two commits, and not what the table has applied. So a run would commit
behind another one whose files do not meet its own, such as one with a later plan, in which a row is
deleted again. Hence a statement stages its snapshot (Iceberg's write-audit-publish), which nothing
reads, and the table is set to it by compare and swap: rows and numbers still move in one step. What
is staged and never published is expired with old snapshots.
"""

from __future__ import annotations

from typing import Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tideline.contract.moves import MOVED_PROPERTY
from tideline.warehouse.iceberg.metadata import IcebergMetadata, TableSnapshot

STAGE_SETTING = "spark.wap.id"
"""The setting of Spark's session under whose value a statement stages its snapshot."""
STAGING_PROPERTY = "write.wap.enabled"
"""The property of tables in which statements may do so."""
_ID = "wap.id"
_MAIN = "main"
_STALE = "CommitFailedException"
_TRIES = 5


class TableAccess(Protocol):
    """The table in its catalog, and Java."""

    jvm: Any

    def load(self) -> Any:
        """Return Iceberg's own table, as the catalog has it now."""
        ...

    def metadata_of(self, table: Any) -> IcebergMetadata:
        """Return the metadata of Iceberg's own ``table`` as it was loaded."""
        ...


class Publication:
    """One statement's snapshot; ``read``: the id of the snapshot that the run has read; None for a
    table without one."""

    def __init__(self, access: TableAccess, read: int | None) -> None:
        self._access = access
        self._read = read
        self._name = str(access.jvm.java.util.UUID.randomUUID())

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the session with which the statement stages its snapshot."""
        return {STAGE_SETTING: self._name}

    def prepare(self, now: IcebergMetadata) -> None:
        """Have the table let statements stage snapshots."""
        if now.properties.get(STAGING_PROPERTY) != "true":
            self._access.load().updateProperties().set(STAGING_PROPERTY, "true").commit()

    def publish(self) -> int | None:
        """Set the table to the snapshot that the statement has staged, and return its id; None
        where it made none. A commit of ours since the table was read is a conflict, and so is any
        commit since the statement's own."""
        for left in reversed(range(_TRIES)):
            table = self._access.load()
            metadata = self._access.metadata_of(table)
            staged = self._staged(metadata)
            if staged is None:
                return None
            parent = None if metadata.current is None else metadata.current.id
            if parent != staged.parent or not metadata.only_others_since(self._read):
                raise conflict("another commit came before this one")
            if MOVED_PROPERTY in metadata.properties:  # It was set since the statement began.
                raise conflict("the table was moved to another format")
            try:
                self._set(table, staged)
            except Py4JJavaError as error:  # A property may have been set meanwhile.
                if not left or _STALE not in str(error):
                    raise
            else:
                return staged.id
        return None

    def _staged(self, metadata: IcebergMetadata) -> TableSnapshot | None:
        found = (one for one in metadata.snapshots.values() if one.summary.get(_ID) == self._name)
        return next(found, None)

    def _set(self, table: Any, staged: TableSnapshot) -> None:
        operations = table.operations()
        base = operations.current()
        builder = self._access.jvm.org.apache.iceberg.TableMetadata.buildFrom(base)
        operations.commit(base, builder.setBranchSnapshot(staged.id, _MAIN).build())


def conflict(why: str) -> PySparkException:
    """Make the failure of a commit that another writer was faster than, as Iceberg names it."""
    return PySparkException(f"{_STALE}: {why}")
