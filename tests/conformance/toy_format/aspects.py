"""A toy table's columns, description and files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types

from tests.conformance.toy_format.log import Entry
from tests.conformance.toy_format.stored import ToyTable
from tideline.contract.description import DESCRIPTION_PROPERTY, Described
from tideline.contract.maintenance import Decision, Files, Thresholds
from tideline.contract.plan import CommitMetadata
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.state import TableWords, TargetSnapshot
from tideline_spark.formats.statements import RowUpdate
from tideline_spark.schemas import column as col


class ToySchema:
    """See `TargetSchema`."""

    def __init__(self, table: ToyTable) -> None:
        self._table = table

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
        without: Collection[str] = (),
    ) -> None:
        """Every table of this format can do all of it."""

    def widen(self, columns: Mapping[str, types.DataType], commit_metadata: CommitMetadata) -> None:
        base = self._table.log.newest()
        wider = [
            [name, columns[name].json() if name in columns else kind, stored]
            for name, kind, stored in base.columns
        ]
        if columns:
            self._table.commit(base, "WIDEN", columns=wider)

    def reshape(
        self,
        columns: Sequence[Shaped],
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        base = self._table.log.newest()
        held = {one[0]: one for one in base.columns}
        shaped = [
            [name, new.dataType.json(), None] if new else [name, *held[was or name][1:]]
            for name, was, new in columns
        ]
        self._table.commit(
            base,
            "RESHAPE",
            columns=shaped,
            properties={**base.properties, **properties},
            commit_metadata=commit_metadata.text(),
        )

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        base = self._table.log.newest()
        if base.applied.get(app, -1) >= number:
            return
        rows, when = self._table.rows(base), F.expr(update.when or "true")
        filled = rows.select(
            *(
                F.when(when, F.expr(update.values[one.name]).cast(one.dataType))
                .otherwise(col(one.name))
                .alias(one.name)
                if one.name in update.values
                else col(one.name)
                for one in rows.schema.fields
            )
        )
        written = self._table.write(filled)
        self._table.commit(
            base,
            "UPDATE",
            changes_data=True,
            commit_metadata=commit_metadata.text(),
            numbers={app: number},
            **written,
        )


class ToyDescription:
    """See `TargetDescription`."""

    def __init__(self, table: ToyTable) -> None:
        self._table = table

    def words(self) -> TableWords:
        return _words(self._table.log.newest())

    def rewrite(self, change: Callable[[TableWords], TableWords]) -> bool:
        base = self._table.log.newest()
        before = _words(base)
        after = change(before)
        held = {"", *before.columns}
        comments = {name: text for name, text in after.comments.items() if name in held}
        after = TableWords(comments, after.firm & before.columns, after.described)
        if after == before:
            return False
        properties = {n: v for n, v in base.properties.items() if n != DESCRIPTION_PROPERTY}
        if after.described != Described():
            properties[DESCRIPTION_PROPERTY] = after.described.text()
        reported: dict[str, Any] = {"comments": comments, "firm": sorted(after.firm)}
        self._table.commit(base, "DESCRIBE", properties=properties, **reported)
        return True

    def without_null(self, columns: Collection[str]) -> frozenset[str]:
        rows = self._table.rows(self._table.log.newest())
        return frozenset(n for n in columns if rows.where(col(n).isNull()).isEmpty())


class ToyFiles:
    """See `TargetFiles`."""

    def __init__(self, table: ToyTable) -> None:
        self._table = table

    def measure(self, thresholds: Thresholds) -> Files:
        base = self._table.log.newest()
        stored = list((self._table.log.path / base.folder).glob("*.parquet"))
        size = sum(file.stat().st_size for file in stored)
        return Files(len(stored), size, rows=self._table.rows(base).count())

    def rewrite(self, thresholds: Thresholds, decision: Decision) -> None:
        base = self._table.log.newest()
        written = self._table.write(self._table.rows(base).coalesce(1))
        self._table.commit(base, "COMPACT", **written)

    def vacuum(self, hours: float) -> int:
        newest = self._table.log.newest().folder
        old = [one for one in self._table.log.path.glob("rows-*") if one.name != newest]
        for folder in old:
            shutil.rmtree(folder)
        return len(old)


def _words(entry: Entry) -> TableWords:
    return TableWords(
        dict(entry.comments),
        frozenset(entry.firm),
        Described.parse(entry.properties.get(DESCRIPTION_PROPERTY)),
        frozenset(one[0] for one in entry.columns),
    )
