"""A version of a BigQuery table, from its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import types

from tideline.warehouse.bigquery.log import CommitLog
from tideline_spark.formats.bigquery.types import spark_type
from tideline_spark.formats.state import TargetSnapshot, TargetVersion


def columns_of(log: CommitLog) -> types.StructType:
    """Return the table's columns as they are now. Raises Misconfigured for a type that we do not
    make."""
    if not log.exists:
        return types.StructType([])
    known = {one.name: one.dataType for one in columns_from_json(log.entry.columns)}
    return types.StructType(
        [
            types.StructField(
                one.name, spark_type(one, known.get(one.name)), one.mode != "REQUIRED"
            )
            for one in log.fields
        ]
    )


def columns_json(schema: types.StructType) -> dict[str, Any]:
    """Return columns as `CommitEntry` has them."""
    return {one.name: one.dataType.jsonValue() for one in schema.fields}


def columns_from_json(columns: Mapping[str, Any]) -> types.StructType:
    """Return columns that `CommitEntry` has."""
    fields = {name: types._parse_datatype_json_value(kind) for name, kind in columns.items()}
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


class BigQueryVersion(TargetVersion):
    """See `TargetVersion`."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        super().__init__(log.version, log.table_commits)

    def stored_bytes(self) -> int:
        """See `TargetVersion`."""
        return 0 if self.log.table is None else int(self.log.table.num_bytes or 0)

    @property
    def properties(self) -> Mapping[str, str]:
        """See `TargetVersion`."""
        return self.log.entry.properties

    def snapshot(self) -> TargetSnapshot:
        """See `TargetVersion`."""
        entry = self.log.entry
        return TargetSnapshot(self.number, entry.applied, entry.properties, columns_of(self.log))
