"""Reads and writes a Delta table's comments and NOT NULL columns: metadata only, no rows.

Delta itself declares a column NOT NULL only when the table is made, because it does not check
existing rows. Here the caller checks them (`tideline_spark.describe`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from pyspark.sql import functions as F

from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline_spark.formats.delta.access import DeltaAccess
from tideline_spark.formats.state import TableWords, undecided
from tideline_spark.schemas import column as col

_COMMENT = "comment"


class DeltaDescription:
    """See `TargetDescription`."""

    def __init__(self, access: DeltaAccess) -> None:
        self._access = access

    def words(self) -> TableWords:
        """See `TargetDescription`."""
        return _words(self._access.begin().metadata())

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        """See `TargetDescription`."""
        transaction = self._access.begin()
        metadata = transaction.metadata()
        before = _words(metadata)
        after = before.holding(change(before))
        if after == before:
            return False
        version = self._commit(transaction, metadata, after)
        news = after.firm - before.firm
        if news and version != transaction.readVersion() + 1:
            self.rewrite(
                lambda now: TableWords(now.comments, now.firm - news, undecided(now.described))
            )
        return True

    def _commit(self, transaction: Any, metadata: Any, after: TableWords) -> int:
        jvm = self._access.jvm
        schema = json.loads(metadata.schemaString())
        for one in schema["fields"]:
            _describe(one, after)
        configuration = metadata.configuration()
        if after.described == Described():
            configuration = configuration.removed(DESCRIPTION_PROPERTY)
        else:
            configuration = configuration.updated(DESCRIPTION_PROPERTY, after.described.text())
        changed = metadata.copy(
            metadata.id(),
            metadata.name(),
            after.comments.get(""),
            metadata.format(),
            json.dumps(schema),
            metadata.partitionColumns(),
            configuration,
            metadata.createdTime(),
        )
        # Not a commit of ours with a manifest number: the same as setting a property by SQL.
        operation = jvm.org.apache.spark.sql.delta.DeltaOperations
        transaction.updateMetadata(changed, False)
        return int(
            transaction.commit(self._access.sequence(), operation.SetTableProperties(configuration))
        )

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        """See `TargetDescription`; files whose statistics show no NULL are not read."""
        if not columns:
            return frozenset()
        names = sorted(columns)
        rows = self._access.session.table(self._access.name)
        missing = [col(name).isNull() for name in names]
        anywhere = missing[0]
        for one in missing[1:]:
            anywhere = anywhere | one
        flags = [F.max(one).alias(f"_{at}") for at, one in enumerate(missing)]
        found = rows.where(anywhere).agg(*flags).collect()[0]
        return frozenset(name for at, name in enumerate(names) if not found[at])


def _words(metadata: Any) -> TableWords:
    fields = json.loads(metadata.schemaString())["fields"]
    comments = {one["name"]: one["metadata"].get(_COMMENT) for one in fields}
    comments[""] = metadata.description()
    described = metadata.configuration().get(DESCRIPTION_PROPERTY)
    return TableWords(
        {name: text for name, text in comments.items() if text},
        frozenset(one["name"] for one in fields if not one["nullable"]),
        Described.parse(described.get() if described.isDefined() else None),
        frozenset(one["name"] for one in fields),
    )


def _describe(column: dict[str, Any], words: TableWords) -> None:
    """Rewrite a column of the schema's JSON."""
    name = column["name"]
    column["nullable"] = name not in words.firm
    comment = words.comments.get(name)
    if comment is None:
        column["metadata"].pop(_COMMENT, None)
    else:
        column["metadata"][_COMMENT] = comment
