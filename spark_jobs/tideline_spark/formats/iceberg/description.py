"""Reads and writes an Iceberg table's comments and NOT NULL columns: metadata only, no rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pyspark.sql import functions as F

from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.state import TableWords
from tideline_spark.schemas import column as col

_COMMENT = "comment"


class IcebergDescription:
    """See `TargetDescription`."""

    def __init__(self, access: IcebergAccess) -> None:
        self._access = access

    def words(self) -> TableWords:
        """See `TargetDescription`."""
        return _words(self._access.metadata_of(self._access.load()))

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        """See `TargetDescription`. Here a commit that brought rows since is a conflict, too."""
        table = self._access.load()
        transaction = table.newTransaction()
        before = _words(self._access.metadata_of(table))
        after = before.holding(change(before))
        if after == before:
            return False
        _describe(transaction.updateSchema(), before, after)
        properties = transaction.updateProperties()
        described = after.described.text() if after.described != Described() else None
        for name, value in ((_COMMENT, after.comments.get("")), (DESCRIPTION_PROPERTY, described)):
            properties = properties.remove(name) if value is None else properties.set(name, value)
        properties.commit()
        if after.firm - before.firm:
            # A REST catalog compares snapshots only for a commit that makes one. Without it, a NULL
            # that came since the rows were looked at would stay in a column that is NOT NULL.
            transaction.newFastAppend().commit()
        self._access.commit_on(table, transaction)
        return True

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        """See `TargetDescription`."""
        if not columns:
            return frozenset()
        names = sorted(self._in_every_file(columns))
        if not names:
            return frozenset()
        rows = self._access.session.table(self._access.name)
        flags = [F.max(col(name).isNull()).alias(f"_{at}") for at, name in enumerate(names)]
        found = rows.agg(*flags).collect()[0]
        return frozenset(name for at, name in enumerate(names) if not found[at])

    def _in_every_file(self, columns: Collection[str]) -> frozenset[str]:
        """Return the columns that every data file holds, as the table's first schema or the files'
        counts show.

        Spark refuses to read a column that is NOT NULL from a file without it, even where all of
        the file's rows are deleted: a column that was added and filled stays optional until such
        files are rewritten.
        """
        table = self._access.load()
        first = table.schemas().get(0)
        fields = self._access.metadata_of(table).schema["fields"]
        ids = {one["name"]: one["id"] for one in fields if one["name"] in columns}
        added = [n for n, at in ids.items() if first is None or first.findField(at) is None]
        if not added:
            return frozenset(ids)
        files = self._access.session.table(f"{self._access.name}.data_files")
        flags = [F.max(F.element_at("value_counts", F.lit(ids[n])).isNull()) for n in added]
        found = files.agg(*flags).collect()[0]
        return frozenset(ids) - {name for at, name in enumerate(added) if found[at]}


def _describe(update: Any, before: TableWords, after: TableWords) -> None:
    """Set the comments and NOT NULL of columns that change."""
    update = update.allowIncompatibleChanges()
    for name in sorted(after.columns | before.columns):
        comment = after.comments.get(name)
        if comment != before.comments.get(name):
            update = update.updateColumnDoc(name, comment)
        if (name in after.firm) != (name in before.firm):
            changed = update.requireColumn if name in after.firm else update.makeColumnOptional
            update = changed(name)
    update.commit()


def _words(metadata: IcebergMetadata) -> TableWords:
    fields = metadata.schema["fields"]
    comments = {one["name"]: one.get("doc") for one in fields}
    comments[""] = metadata.properties.get(_COMMENT)
    return TableWords(
        {name: text for name, text in comments.items() if text},
        frozenset(one["name"] for one in fields if one["required"]),
        Described.parse(metadata.properties.get(DESCRIPTION_PROPERTY)),
        frozenset(one["name"] for one in fields),
    )
