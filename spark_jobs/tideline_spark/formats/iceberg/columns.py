"""Adds, renames, drops and empties an Iceberg table's columns in one commit.

Iceberg keeps columns by ids: a renamed column keeps its own, a new one with a dropped one's name
gets another. All steps are one transaction of the catalog. A change of the schema makes no
snapshot, so the transaction adds an empty one, which records that the change is ours: without it,
it would count as others' (`tideline.warehouse.iceberg.metadata`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import types

from tideline.contract.errors import Misconfigured
from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.iceberg.metadata import IcebergMetadata
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.iceberg.access import IcebergAccess
from tideline_spark.formats.iceberg.rewriting import rewrite_as
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.formats.statements import RowUpdate
from tideline_spark.schemas import quote

_MOVED = "_tl_moved_"
"""The name of a column on its way from one name to another begins so."""
_WHOLE = (types.ByteType, types.ShortType, types.IntegerType)


class IcebergColumns:
    """See `TargetSchema`."""

    def __init__(self, access: IcebergAccess) -> None:
        self._access = access

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
        without: Collection[str] = (),
    ) -> None:
        """See `TargetSchema`: every table of this format can do all of it."""

    def widen(self, columns: Mapping[str, types.DataType], commit_metadata: CommitMetadata) -> None:
        """See `TargetSchema`. Types that Iceberg cannot promote (whole numbers to decimals, a
        larger scale) are given by writing the table's rows again."""
        if not columns:
            return
        table = self._access.load()
        held = {one.name: one.dataType for one in self._access.spark_schema(table)}
        wider = {name: kind for name, kind in columns.items() if not _has(held[name], kind)}
        if not wider:
            return
        if all(_promoted(held[name], kind) for name, kind in wider.items()):
            transaction = table.newTransaction()
            update = transaction.updateSchema()
            for name, kind in wider.items():
                update = update.updateColumn(name, self._access.iceberg_type(kind))
            update.commit()
            self._access.commit_columns(table, transaction, commit_metadata)
            return
        listed = ", ".join(
            f"cast({quote(name)} AS {wider[name].simpleString()}) AS {quote(name)}"
            if name in wider
            else quote(name)
            for name in held
        )
        rewrite_as(self._access, listed, commit_metadata)

    def reshape(
        self,
        columns: Sequence[Shaped],
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        """See `TargetSchema`."""
        table = self._access.load()
        transaction = table.newTransaction()
        before = self._access.metadata_of(table)
        held = [one["name"] for one in before.schema["fields"]]
        kept = {was or name for name, was, new in columns if new is None}
        _check_layout(before, kept)
        _check_names(before, columns)
        _move_away(transaction.updateSchema(), columns, [n for n in held if n not in kept])
        self._arrange(transaction.updateSchema(), columns)
        changed = transaction.updateProperties()
        for name, value in {**properties, **_renamed_layout(before, columns)}.items():
            changed = changed.set(name, value)
        changed.commit()
        self._access.commit_columns(table, transaction, commit_metadata)

    def _arrange(self, update: Any, columns: Sequence[Shaped]) -> None:
        """Give columns their names, make new ones, and put all in order."""
        previous: str | None = None
        for at, (name, was, new) in enumerate(columns):
            if new is not None:
                update = update.addColumn(None, name, self._access.iceberg_type(new.dataType))
                place = name
            else:
                place = _on_the_way(at) if was not in (None, name) else name
                if place != name:
                    update = update.renameColumn(place, name)
            update = (
                update.moveFirst(place) if previous is None else update.moveAfter(place, previous)
            )
            previous = place
        update.commit()

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        """See `TargetSchema`."""
        before = self._access.metadata_of(self._access.load())
        if before.applied().get(app, number - 1) >= number:
            return
        with self._access.committing(before, commit_metadata, {app: number}):
            self._access.session.sql(update.sql(self._access.name)).collect()


def _move_away(update: Any, columns: Sequence[Shaped], dropped: Sequence[str]) -> None:
    """Drop columns, and give those that get other names names that nothing else has."""
    for name in dropped:
        update = update.deleteColumn(name)
    for at, (name, was, new) in enumerate(columns):
        if new is None and was not in (None, name):
            update = update.renameColumn(was, _on_the_way(at))
    update.commit()


def _on_the_way(at: int) -> str:
    return f"{_MOVED}{at}"


def _has(held: types.DataType, wanted: types.DataType) -> bool:
    """Return whether ``held`` is ``wanted`` already: Iceberg's smallest whole number is Spark's
    integer."""
    return held == wanted or (isinstance(held, types.IntegerType) and isinstance(wanted, _WHOLE))


def _promoted(held: types.DataType, wanted: types.DataType) -> bool:
    """Return whether Iceberg reads values of ``held`` as ``wanted``.

    https://iceberg.apache.org/spec/#schema-evolution
    """
    if isinstance(held, types.IntegerType):
        return isinstance(wanted, types.LongType)
    if isinstance(held, types.FloatType):
        return isinstance(wanted, types.DoubleType)
    return (
        isinstance(held, types.DecimalType)
        and isinstance(wanted, types.DecimalType)
        and held.scale == wanted.scale
        and held.precision <= wanted.precision
    )


def _check_layout(before: IcebergMetadata, kept: Collection[str]) -> None:
    """Raise Misconfigured where a column that the table is partitioned or sorted by would be
    dropped; renamed ones keep their ids."""
    layout = TableLayout.of_properties(before.properties)
    partitions = {
        one["name"] for one in before.schema["fields"] if one["id"] in before.partition_sources
    }
    for name in sorted((partitions | set(layout.cluster_by)) - set(kept)):
        kind = "partition" if name in partitions else "sort"
        raise Misconfigured(
            f"its {kind} column {name!r} was dropped or replaced",
            hint="choose another partition_by and cluster_by, and run `tideline rebuild`"
            " (docs/LAYOUT.md)",
        )


def _check_names(before: IcebergMetadata, columns: Sequence[Shaped]) -> None:
    """Raise Misconfigured for a column that would have the name of a partition field.

    One that the source dropped and that is kept, empty, is made again by its name.
    """
    ids = {one["name"]: one["id"] for one in before.schema["fields"]}
    fields = before.partition_names
    for name, was, new in columns:
        if new is None and was in (None, name):
            continue
        if name in fields and name in ids and was is None:
            raise Misconfigured(
                f"column {name!r} was dropped at the source, or replaced, and Iceberg has given its"
                " name to partitions, so that none can be made in its place",
                hint='set dropped_columns = "drop" for the table, which lets a dropped column go;'
                ' where another one has come by its name, on_change.add = "ignore", too'
                " (docs/LAYOUT.md)",
            )
        if name in fields and (new is not None or fields[name] != ids[was]):
            raise Misconfigured(
                f"a column has come with the name {name!r}, which Iceberg has given to partitions",
                hint="set on_change.add to ignore for the table, which goes on without it, or drop"
                " the table in the catalog to have it made again (docs/LAYOUT.md)",
            )


def _renamed_layout(before: IcebergMetadata, columns: Sequence[Shaped]) -> dict[str, str]:
    """Return the property of the table's layout with the columns' names after a change."""
    names = {was: name for name, was, new in columns if new is None and was is not None}
    return TableLayout.of_properties(before.properties).renamed(names).properties()
