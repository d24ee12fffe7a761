"""Adds, renames, drops and empties a Delta table's columns in one commit.

SQL has a statement and a commit for each of these. A run killed between two of them would leave a
table that neither the old nor the new names describe. So the table's metadata is written as a
whole: a column keeps its values by its physical name, which column mapping gives it permanently; a
column without one is new.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark.sql import types

from tideline.contract.errors import Misconfigured
from tideline.contract.plan import CommitMetadata
from tideline.contract.readers import NEEDS_MAPPING, Feature
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.delta.access import MAPPING, DeltaAccess
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.formats.statements import RowUpdate, listed_properties
from tideline_spark.scala_items import scala_items
from tideline_spark.schemas import quote

_WIDENING = ("delta.enableTypeWidening", "true")
_LOCAL_TIME = ("delta.feature.timestampNtz", "supported")
_FEATURES = {
    MAPPING[0]: Feature.COLUMN_MAPPING,
    _WIDENING[0]: Feature.TYPE_WIDENING,
    _LOCAL_TIME[0]: Feature.TIMESTAMP_NTZ,
}
"""The feature that each property switches on."""


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
        without: Collection[str] = (),
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
        refused = sorted(_FEATURES[name] for name in missing if _FEATURES[name] in without)
        if refused:
            raise Misconfigured(
                f"its columns need {', '.join(refused)}, which a reader in the settings lacks",
                hint="leave that reader out of the table's readers, or rebuild the table behind"
                " the change (docs/LAYOUT.md)",
            )
        if missing:
            self._session.sql(
                f"ALTER TABLE {self._access.name} SET TBLPROPERTIES ({listed_properties(missing)})"
            )

    def widen(self, columns: Mapping[str, types.DataType], commit_metadata: CommitMetadata) -> None:
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
        _check_partitions(scala_items(metadata.partitionColumns()), columns)
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
        with self._access.with_metadata(commit_metadata):
            transaction.updateMetadata(changed, False)
            transaction.commit(
                self._access.sequence(),
                operations.UpdateSchema(metadata.schema(), changed.schema()),
            )

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        """See `TargetSchema`."""
        with self._access.with_metadata(commit_metadata, app, number):
            self._session.sql(update.sql(self._access.name)).collect()


def _check_partitions(partitions: Iterable[str], columns: Sequence[Shaped]) -> None:
    """Raise Misconfigured where a partition column would move: its values are folders' names, which
    a change of metadata does not rename."""
    stay = {name for name, was, new in columns if new is None and was in (None, name)}
    for name in partitions:
        if name not in stay:
            raise Misconfigured(
                f"its partition column {name!r} was renamed, dropped or replaced",
                hint="choose another partition_by, and run `tideline rebuild` (docs/LAYOUT.md)",
            )
