# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""Changes a BigQuery table's columns.

What one ALTER TABLE can say is one: columns that are only added, dropped or renamed. The rest makes
the table from its own rows, in one statement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import types

from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.bigquery.log import CommitEntry, CommitLog
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess, after
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.bigquery.layout import laid_out, making
from tideline_spark.formats.bigquery.types import bigquery_type, check_names
from tideline_spark.formats.bigquery.version import columns_json, columns_of
from tideline_spark.formats.state import TargetSnapshot
from tideline_spark.formats.statements import RowUpdate

_CHANGING = "to change the columns"


class BigQueryColumns:
    """See `TargetSchema`."""

    def __init__(self, access: BigQueryAccess) -> None:
        self._access = access
        self._looked: int | None = None
        """The version that the columns to come were made for (None: any)."""

    def prepare(
        self,
        snapshot: TargetSnapshot,
        *,
        mapping: bool,
        widening: bool,
        added: Sequence[types.StructField],
        without: Collection[str] = (),
    ) -> None:
        """See `TargetSchema`: nothing is to be enabled."""
        self._looked = snapshot.version
        check_names(types.StructType([*snapshot.schema.fields, *added]))

    def widen(self, columns: Mapping[str, types.DataType], commit_metadata: CommitMetadata) -> None:
        """See `TargetSchema`."""
        log = self._as_looked()
        held = columns_of(log)
        wider = {name: kind for name, kind in columns.items() if held[name].dataType != kind}
        if not wider:
            return
        fields = [
            types.StructField(one.name, wider.get(one.name, one.dataType)) for one in held.fields
        ]
        entry = self._after(log, types.StructType(fields), commit_metadata, {})
        changed = [
            f"ALTER COLUMN {DIALECT.quote(name)} SET DATA TYPE {bigquery_type(kind)}"
            for name, kind in wider.items()
            if bigquery_type(kind) != bigquery_type(held[name].dataType)
        ]
        self._change(log, changed, entry)

    def reshape(
        self,
        columns: Sequence[Shaped],
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        """See `TargetSchema`. New columns are last where that takes no rewrite of the table."""
        log = self._as_looked()
        held = columns_of(log)
        fields = [
            types.StructField(name, held[str(was)].dataType if new is None else new.dataType)
            for name, was, new in columns
        ]
        wanted = types.StructType(fields)
        check_names(wanted)
        actions = _actions(columns, held)
        if actions is None:
            self._rewrite(log, columns, wanted, properties, commit_metadata)
            return
        entry = self._after(log, _in_order(held, columns, wanted), commit_metadata, properties)
        self._change(log, actions, entry)

    def refill(
        self, update: RowUpdate, commit_metadata: CommitMetadata, app: str, number: int
    ) -> None:
        """See `TargetSchema`."""
        log = self._access.read()
        if log.entry.applied.get(app, number - 1) >= number:
            return
        changed = DIALECT.update(update)
        # BigQuery has no UPDATE without WHERE.
        sql = RowUpdate(changed.values, changed.when or "TRUE").sql(self._access.name.sql)
        entry = after(log, commit_metadata, "UPDATE", changes_data=True, numbers={app: number})
        self._access.commit(log, [sql], entry, "to fill columns")

    def _change(self, log: CommitLog, actions: Sequence[str], entry: CommitEntry) -> None:
        if actions:
            sql = f"ALTER TABLE {self._access.name.sql} {', '.join(actions)}"
            self._access.declare(log, sql, entry, _CHANGING)
        else:
            self._access.commit(log, [], entry, _CHANGING)
        self._looked = log.version + 1

    def _rewrite(
        self,
        log: CommitLog,
        columns: Sequence[Shaped],
        wanted: types.StructType,
        properties: Mapping[str, str],
        commit_metadata: CommitMetadata,
    ) -> None:
        entry = self._after(log, wanted, commit_metadata, properties)
        layout = TableLayout.of_properties(entry.properties)
        table_of = log.table
        clustered = () if table_of is None else tuple(table_of.clustering_fields or ())
        renamed = {was: name for name, was, new in columns if new is None and was is not None}
        key = [renamed[name] for name in clustered if name in renamed]
        listed = ", ".join(
            f"{_value(one, field.dataType)} AS {DIALECT.quote(field.name)}"
            for one, field in zip(columns, wanted.fields, strict=True)
        )
        how = laid_out(wanted, layout, key)
        sql = making(self._access, wanted, how, f"SELECT {listed} FROM {self._access.name.sql}")
        self._access.declare(log, sql, entry, _CHANGING)
        self._looked = log.version + 1

    def _as_looked(self) -> CommitLog:
        """Return the table as it was looked at. Raises TargetOvertaken where it has changed since:
        columns of another run would be dropped, with their values."""
        log = self._access.read()
        if self._looked not in (None, log.version):
            raise TargetOvertaken
        return log

    def _after(
        self,
        log: CommitLog,
        schema: types.StructType,
        commit_metadata: CommitMetadata,
        properties: Mapping[str, str],
    ) -> CommitEntry:
        return after(
            log,
            commit_metadata,
            "ALTER TABLE",
            columns=columns_json(schema),
            properties={**log.entry.properties, **properties},
            modified=log.looked_ms,
        )


def _actions(columns: Sequence[Shaped], held: types.StructType) -> list[str] | None:
    """Return the actions of the one ALTER TABLE that makes ``columns``; None: there is none."""
    new = [(name, field) for name, _, field in columns if field is not None]
    renamed = [(was, name) for name, was, field in columns if field is None and was != name]
    kept = {was for _, was, field in columns if field is None}
    dropped = [name for name in held.names if name not in kept]
    if sum(map(bool, (new, renamed, dropped))) > 1:
        return None
    if {name for _, name in renamed} & set(held.names):
        return None  # Columns exchange their names.
    order = [was for _, was, field in columns if field is None]
    if order != [name for name in held.names if name in kept]:
        return None
    quote = DIALECT.quote
    return [
        *(f"ADD COLUMN {quote(n)} {bigquery_type(one.dataType)}" for n, one in new),
        *(f"DROP COLUMN {quote(name)}" for name in dropped),
        *(f"RENAME COLUMN {quote(str(was))} TO {quote(name)}" for was, name in renamed),
    ]


def _in_order(
    held: types.StructType, columns: Sequence[Shaped], wanted: types.StructType
) -> types.StructType:
    """Return ``wanted`` in the order that an ALTER TABLE leaves: new columns come last."""
    new = {name for name, _, field in columns if field is not None}
    old = [one for one in wanted.fields if one.name not in new]
    return types.StructType([*old, *(one for one in wanted.fields if one.name in new)])


def _value(column: Shaped, data_type: types.DataType) -> str:
    _, was, new = column
    if new is None:
        return DIALECT.quote(str(was))
    return f"CAST(NULL AS {bigquery_type(data_type)})"
