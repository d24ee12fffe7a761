"""The layouts that tables of each format can have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from tideline.contract.modes import Mode
from tideline.contract.partition_fields import (
    KINDS,
    PartitionField,
    Transform,
    looks_like_transform,
)
from tideline.contract.schema import TableSchema
from tideline.contract.stream_rules import stream_problem
from tideline.contract.table_layout import TableLayout
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.types import Kind


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """The layouts of one format, named ``title``.

    ``kinds``: the transforms, and the types of columns that each takes. ``fields_max``: of a table.
    ``both``: whether a table may have partitions and clusters. ``unclustered``: types of columns by
    which none is clustered. ``instead``: what to do about a transform that there is not.
    ``named_as_columns``: whether no column may have the name of a partition field. ``streams``:
    whether rows can come by streams.
    """

    title: str
    kinds: Mapping[Transform, frozenset[Kind]]
    instead: str
    fields_max: int | None = None
    both: bool = True
    unclustered: frozenset[Kind] = frozenset()
    named_as_columns: bool = False
    streams: bool = False

    def problem(self, layout: TableLayout) -> str | None:
        """Return what no table can have, and what to do; None if tables can."""
        if layout.streamed and not self.streams:
            return (
                f'writes = "stream" is for BigQuery tables, not for {self.title} ones: leave it out'
            )
        for one in layout.fields:
            if one.transform not in self.kinds:
                return f"partition_by has {one}, which no {self.title} table has: {self.instead}"
        if self.fields_max is not None and len(layout.partition_by) > self.fields_max:
            return f"partition_by has more than {self.fields_max} field: {self.instead}"
        if layout.partition_by and layout.cluster_by and not self.both:
            return (
                "partition_by and cluster_by exclude each other in"
                f" {self.title} tables: leave one out"
            )
        return None


RULES: Mapping[str, LayoutRule] = {
    DEFAULT_FORMAT: LayoutRule(
        title="Delta",
        # A value is a folder, and is read back exactly: not decimals and floats, whose text is not
        # unique, nor timestamps, of which each is its own.
        kinds={
            Transform.IDENTITY: frozenset(
                (Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.STRING)
            )
            | {Kind.DATE}
        },
        instead='name columns, or set format = "iceberg" for the table',
        both=False,
        # Delta keeps no smallest and largest value of these.
        unclustered=frozenset({Kind.BOOLEAN, Kind.BINARY}),
    ),
    "iceberg": LayoutRule(
        title="Iceberg", kinds=KINDS, instead="name another transform", named_as_columns=True
    ),
    # https://cloud.google.com/bigquery/docs/partitioned-tables
    "bigquery": LayoutRule(
        title="BigQuery",
        kinds={
            Transform.IDENTITY: frozenset({Kind.DATE}),
            **{
                one: KINDS[one]
                for one in (Transform.YEAR, Transform.MONTH, Transform.DAY, Transform.HOUR)
            },
        },
        instead="name one column of dates, or one of year(column), month(column), day(column) and"
        " hour(column)",
        fields_max=1,
        unclustered=frozenset({Kind.FLOAT32, Kind.FLOAT64, Kind.BINARY}),
        streams=True,
    ),
}


def format_problem(layout: TableLayout, table_format: str) -> str | None:
    """Return what tables of ``table_format`` cannot have, and what to do; None if they can."""
    return _rule(table_format).problem(layout)


def layout_problem(
    layout: TableLayout, schema: TableSchema, mode: Mode, table_format: str = DEFAULT_FORMAT
) -> str | None:
    """Return why no target of ``schema`` can be made with ``layout``; None if one can."""
    rule = _rule(table_format)
    if layout.streamed and rule.streams:
        problem = stream_problem(schema, mode)
        if problem is not None:
            return problem
    if layout and mode is Mode.APPEND:
        return "a log of changes is partitioned by its batches: leave partition_by and cluster_by"
    problem = rule.problem(layout)
    if problem is not None:
        return problem
    checks = (
        *(_field_problem(one, schema, rule) for one in layout.fields),
        *(_cluster_problem(name, schema, rule) for name in layout.cluster_by),
    )
    return next((found for found in checks if found is not None), None)


def _rule(table_format: str) -> LayoutRule:
    return RULES.get(table_format, RULES[DEFAULT_FORMAT])


def _field_problem(field: PartitionField, schema: TableSchema, rule: LayoutRule) -> str | None:
    unknown = _unknown("partition_by", field.column, schema)
    if unknown is not None:
        return unknown
    kind, taken = schema.column(field.column).logical.kind, rule.kinds[field.transform]
    if kind not in taken:
        known = ", ".join(sorted(one.value for one in taken))
        whose = "partitions"
        if field.transform is not Transform.IDENTITY:
            whose = f"{field.transform.value}s"
        return f"partition_by names {str(field)!r}, of type {kind.value}: {whose} are of {known}"
    transformed = field.transform is not Transform.IDENTITY
    if rule.named_as_columns and transformed and field.name in schema.column_names:
        return (
            f"partition_by has {field}, whose partitions {rule.title} names {field.name!r} as a"
            " column of the table is named: partition by another transform, or by that column"
        )
    return None


def _cluster_problem(name: str, schema: TableSchema, rule: LayoutRule) -> str | None:
    unknown = _unknown("cluster_by", name, schema)
    if unknown is not None:
        return unknown
    kind = schema.column(name).logical.kind
    if kind in rule.unclustered:
        return f"cluster_by names {name!r}, of type {kind.value}, by which no table is clustered"
    return None


def _unknown(key: str, name: str, schema: TableSchema) -> str | None:
    if name in schema.column_names:
        return None
    folded = {one.lower(): one for one in schema.column_names}
    near = difflib.get_close_matches(name.lower(), folded, n=1)
    meant = f"; did you mean {folded[near[0]]!r}?" if near else ""
    if key == "partition_by" and looks_like_transform(name):
        meant = (
            "; transforms are bucket(number, column), truncate(width, column), year(column),"
            " month(column), day(column) and hour(column)"
        )
    return f"{key} names {name!r}, a column that the source's table does not have{meant}"
