"""The ways of statements to write an Iceberg table: deletion vectors beside its files, or its files
again."""

from __future__ import annotations

from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.statements import listed_properties

MODES = ("write.merge.mode", "write.update.mode", "write.delete.mode")
"""The table's properties."""
ON_READ = "merge-on-read"
ON_WRITE = "copy-on-write"


def writable(access: IcebergAccess, before: IcebergMetadata) -> IcebergMetadata:
    """Return the table ``before`` a statement, once the statement can write it.

    Where a layout that the table has or had names a column that it no longer has, Iceberg's writer
    of deletion vectors fails ("Cannot find field 1000"): such a table is written `ON_WRITE` from
    here on.
    """
    properties = before.properties
    if not before.was_partitioned_by_dropped or properties.get(MODES[0]) == ON_WRITE:
        return before
    given = listed_properties(dict.fromkeys(MODES, ON_WRITE))
    access.session.sql(f"ALTER TABLE {access.name} SET TBLPROPERTIES ({given})")
    return access.metadata_of(access.load())
