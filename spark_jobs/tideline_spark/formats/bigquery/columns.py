# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""Changes a BigQuery table's columns.

What one ALTER TABLE can say is one: columns that are only added, dropped or renamed. The rest makes
the table from its own rows, in one statement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from pyspark.sql import types

from tideline.contract.plan import CommitMetadata
from tideline.contract.table_layout import TableLayout
from tideline.warehouse.bigquery.log import CommitEntry, CommitLog
from tideline_spark.formats.base import Shaped
from tideline_spark.formats.bigquery.access import DIALECT, BigQueryAccess, after
from tideline_spark.formats.bigquery.jobs import TargetOvertaken
from tideline_spark.formats.bigquery.layout import laid_out, making
from tideline_spark.formats.bigquery.stream_key import check_fresh, key_of, key_properties
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
        key = key_of(log.entry.properties) if log.streamed else ()
        kept = {was for name, was, new in columns if new is None and name == was}
        actions = _actions(columns, held)
        if actions is None or not kept.issuperset(key):
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
        if log.streamed:
            self._rewrite_rows(log, changed, commit_metadata, {app: number})
            return
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
        query = f"SELECT {listed} FROM {self._access.name.sql}"
        streamed: tuple[str, ...] = ()
        if log.streamed:
            check_fresh(self._access, log)
            streamed = tuple(renamed[name] for name in key_of(entry.properties))
            declared = {**entry.properties, **key_properties(streamed)}
            entry = msgspec.structs.replace(entry, properties=declared)
        sql = making(self._access, wanted, how, query, streamed)
        self._access.declare(log, sql, entry, _CHANGING)
        self._looked = log.version + 1

    def _rewrite_rows(
        self,
        log: CommitLog,
        update: RowUpdate,
        commit_metadata: CommitMetadata,
        numbers: Mapping[str, int],
    ) -> None:
        """Make a streamed table, which no UPDATE may change, from its own rows, as ``update`` says
        in BigQuery's SQL."""
        check_fresh(self._access, log)
        held, properties = columns_of(log), log.entry.properties
        key = key_of(properties)
        how = laid_out(held, TableLayout.of_properties(properties), key)
        query = updated_rows(self._access.name.sql, held, update)
        entry = after(
            log, commit_metadata, "CREATE OR REPLACE TABLE", changes_data=True, numbers=numbers
        )
        sql = making(self._access, held, how, query, key)
        self._access.declare(log, sql, entry, "to fill columns")

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


def updated_rows(table: str, held: types.StructType, update: RowUpdate) -> str:
    """Return the query of the rows of ``table``, a name in SQL with the columns ``held``, as
    ``update``, in BigQuery's SQL, would leave them."""
    quote, when = DIALECT.quote, update.when or "TRUE"
    listed = ", ".join(
        f"IF({when}, {update.values[name]}, {quote(name)}) AS {quote(name)}"
        if name in update.values
        else quote(name)
        for name in held.names
    )
    return f"SELECT {listed} FROM {table}"


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
