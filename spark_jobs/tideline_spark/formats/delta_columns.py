"""A Delta table's columns: made, renamed, dropped and emptied in one commit.

SQL has a statement and a commit for each of these. A run that is killed between two of them would
leave a table that neither the old nor the new names describe, so the table's metadata is written as
a whole: a column keeps its values by its physical name, which column mapping gives it once and for
all; one without is a new column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession, types

from tideline.contract.plan import Stamp
from tideline_spark.formats.delta import DeltaTable
from tideline_spark.formats.delta_version import Snapshot
from tideline_spark.schemas import literal, quote

_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_MAPPING = ("delta.columnMapping.mode", "name")
_WIDENING = ("delta.enableTypeWidening", "true")
_LOCAL_TIME = ("delta.feature.timestampNtz", "supported")

Shaped = tuple[str, str | None, types.StructField | None]
"""A column afterwards: its name; the column that it is now, or None and what is to be made."""


class DeltaColumns:
    """The columns of ``target``, through its session."""

    def __init__(self, session: SparkSession, target: DeltaTable) -> None:
        self._session = session
        self._target = target
        self._jvm: Any = session._jvm

    @property
    def table(self) -> str:
        """The table as SQL names it."""
        return self._target.name

    def prepare(
        self,
        snapshot: Snapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
    ) -> None:
        """Switch on what later commits need; each costs older readers something, and stays.

        ``mapping``: columns are renamed, dropped or emptied; ``widening``: they get wider types.
        """
        wanted = dict[str, str]()
        if mapping or any(_NEEDS_MAPPING & set(field.name) for field in added):
            wanted |= dict([_MAPPING])
        if widening:
            wanted |= dict([_WIDENING])
        if any(isinstance(field.dataType, types.TimestampNTZType) for field in added):
            wanted |= dict([_LOCAL_TIME])
        missing = {k: v for k, v in wanted.items() if snapshot.properties.get(k) != v}
        if missing:
            listed = ", ".join(f"{literal(k)} = {literal(v)}" for k, v in missing.items())
            self._session.sql(f"ALTER TABLE {self._target.name} SET TBLPROPERTIES ({listed})")

    def widen(self, columns: Mapping[str, types.DataType]) -> None:
        """Give columns wider types; every value stays. A commit for each, which may be repeated."""
        for name, data_type in columns.items():
            typed = f"{quote(name)} TYPE {data_type.simpleString()}"
            self._session.sql(f"ALTER TABLE {self._target.name} ALTER COLUMN {typed}")

    def reshape(
        self, columns: Sequence[Shaped], properties: Mapping[str, str], stamp: Stamp
    ) -> None:
        """Make ``columns`` the table's, in this order, and set ``properties``; one commit.

        Another commit since the table was looked at that changes columns or properties is a
        conflict.
        """
        transaction = self._target.begin()
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
        operations = self._jvm.org.apache.spark.sql.delta.DeltaOperations
        nothing = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(
            self._jvm.java.util.ArrayList()
        )
        with self._target.stamped(stamp):
            transaction.updateMetadata(changed, False)
            transaction.commit(
                nothing, operations.UpdateSchema(metadata.schema(), changed.schema())
            )

    def refill(self, statement: str, stamp: Stamp, app: str, number: int) -> None:
        """Run an UPDATE once: Delta skips it when the transaction ``app`` is at ``number``."""
        with self._target.stamped(stamp, app, number):
            self._session.sql(statement).collect()
