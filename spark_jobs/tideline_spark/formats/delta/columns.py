"""Adds, renames, drops and empties a Delta table's columns in one commit.

SQL has a statement and a commit for each of these. A run killed between two of them would leave a
table that neither the old nor the new names describe. So the table's metadata is written as a
whole: a column keeps its values by its physical name, which column mapping gives it permanently; a
column without one is new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import types

from tideline.contract.plan import CommitMetadata
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.delta.access import MAPPING, NEEDS_MAPPING, DeltaAccess
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.formats.statements import RowUpdate
from tideline_spark.schemas import literal, quote

_WIDENING = ("delta.enableTypeWidening", "true")
_LOCAL_TIME = ("delta.feature.timestampNtz", "supported")


class DeltaColumns:
    """See `TargetSchema`."""

    def __init__(self, access: DeltaAccess) -> None:
        self._access = access
        self._session = access.session

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
    ) -> None:
        """See `TargetSchema`."""
        wanted = dict[str, str]()
        if mapping or any(NEEDS_MAPPING & set(field.name) for field in added):
            wanted |= dict([MAPPING])
        if widening:
            wanted |= dict([_WIDENING])
        if any(isinstance(field.dataType, types.TimestampNTZType) for field in added):
            wanted |= dict([_LOCAL_TIME])
        missing = {k: v for k, v in wanted.items() if snapshot.properties.get(k) != v}
        if missing:
            listed = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in missing.items())
            self._session.sql(f"ALTER TABLE {self._access.name} SET TBLPROPERTIES ({listed})")

    def widen(self, columns: Mapping[str, types.DataType]) -> None:
        """See `TargetSchema`; one commit per column."""
        for name, data_type in columns.items():
            typed = f"{quote(name)} TYPE {data_type.simpleString()}"
            self._session.sql(f"ALTER TABLE {self._access.name} ALTER COLUMN {typed}")

    def reshape(
        self,
        columns: Sequence[Shaped],
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        """See `TargetSchema`."""
        transaction = self._access.begin()
        metadata = transaction.metadata()
        held = {one["name"]: one for one in json.loads(metadata.schemaString())["fields"]}
        fields = [
            json.loads(new.json()) if new is not None else {**held[was or name], "name": name}
            for name, was, new in columns
        ]
        configuration = metadata.configuration()
        for name, value in properties.items():
            configuration = configuration.updated(name, value)
        changed = metadata.copy(
            metadata.id(),
            metadata.name(),
            metadata.description(),
            metadata.format(),
            json.dumps({"type": "struct", "fields": fields}),
            metadata.partitionColumns(),
            configuration,
            metadata.createdTime(),
        )
        operations = self._access.jvm.org.apache.spark.sql.delta.DeltaOperations
        nothing = self._access.jvm.org.apache.spark.api.python.PythonUtils.toSeq(
            self._access.jvm.java.util.ArrayList()
        )
        with self._access.with_metadata(commit_metadata):
            transaction.updateMetadata(changed, False)
            transaction.commit(
                nothing, operations.UpdateSchema(metadata.schema(), changed.schema())
            )

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        """See `TargetSchema`."""
        with self._access.with_metadata(commit_metadata, app, number):
            self._session.sql(update.sql(self._access.name)).collect()
