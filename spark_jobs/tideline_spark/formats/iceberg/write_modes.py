"""The ways of statements to write an Iceberg table: deletion vectors beside its files, or its files
again."""

from __future__ import annotations

from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.iceberg.publishing import TableAccess

MODES = ("write.merge.mode", "write.update.mode", "write.delete.mode")
"""The table's properties."""
ON_READ = "merge-on-read"
ON_WRITE = "copy-on-write"


def make_writable(access: TableAccess, before: IcebergMetadata) -> None:
    """Have the table, ``before`` a statement, written so that the statement can.

    Where a layout that the table has or had names a column that it no longer has, Iceberg's writer
    of deletion vectors fails ("Cannot find field 1000"): such a table is written `ON_WRITE` from
    here on. That makes no snapshot: what the caller has found in ``before`` is still judged by it.
    """
    properties = before.properties
    if before.was_partitioned_by_dropped and properties.get(MODES[0]) != ON_WRITE:
        update = access.load().updateProperties()
        for mode in MODES:
            update = update.set(mode, ON_WRITE)
        update.commit()
