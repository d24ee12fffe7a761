"""The layout of a warehouse table: by which columns its files are partitioned, clustered or sorted.

A target records the layout that it was made with in one of its properties. Another one is given by
a rebuild. In Delta tables the two kinds exclude each other, and partitions are of columns' values;
an Iceberg table may have both, and transforms.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.modes import Mode
from tideline.contract.partition_fields import (
    KINDS,
    PartitionField,
    Transform,
    looks_like_transform,
    parse_field,
)
from tideline.contract.schema import TableSchema
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.types import Kind

LAYOUT_PROPERTY = "tideline.layout"
"""The property in which a target records its layout; absent: neither partitioned nor clustered."""
CLUSTERING_COLUMNS_MAX = 4
"""The limit of the format."""
_FOLDERS = frozenset(
    {Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.STRING, Kind.DATE}
)
"""Kinds by which Delta tables are partitioned: each value is a folder, and read back exactly.

Not decimals and floats, whose text is not unique, nor timestamps, of which each is its own."""
_NOT_CLUSTERED = frozenset({Kind.BOOLEAN, Kind.BINARY})
"""Kinds of which Delta keeps no smallest and largest value."""
_ICEBERG_ALONE = "only Iceberg tables have"
_OTHERWISE = 'name columns, or set format = "iceberg" for the table'


class TableLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Partition fields in their text form, and columns that rows are clustered (in Iceberg tables:
    sorted) by."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.partition_by or self.cluster_by)

    def __str__(self) -> str:
        kinds = (("partitioned", self.partition_by), ("clustered", self.cluster_by))
        found = [f"{how} by {', '.join(map(repr, names))}" for how, names in kinds if names]
        return " and ".join(found) or "neither partitioned nor clustered"

    def partitioned(self, mode: Mode) -> bool:
        """Return whether a table in ``mode`` has partitions: a log of changes has its own."""
        return bool(self.partition_by) or mode is Mode.APPEND

    @property
    def fields(self) -> tuple[PartitionField, ...]:
        """The fields that the table is partitioned by."""
        return tuple(map(parse_field, self.partition_by))

    @property
    def transforms(self) -> tuple[PartitionField, ...]:
        """The fields that are more than a column."""
        return tuple(one for one in self.fields if one.transform is not Transform.IDENTITY)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of both kinds; one of both kinds twice."""
        return (*(one.column for one in self.fields), *self.cluster_by)

    def renamed(self, names: Mapping[str, str]) -> TableLayout:
        """Return the layout of the same columns under the names that ``names`` gives them."""
        fields = (one.of(names.get(one.column, one.column)) for one in self.fields)
        return TableLayout(
            tuple(map(str, fields)), tuple(names.get(name, name) for name in self.cluster_by)
        )

    def properties(self) -> dict[str, str]:
        """Return the property that records the layout; {} for none."""
        return {LAYOUT_PROPERTY: msgspec.json.encode(self).decode()} if self else {}

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> TableLayout:
        """Return the layout that a table records."""
        text = properties.get(LAYOUT_PROPERTY)
        try:
            return cls() if text is None else _DECODER.decode(text)
        except msgspec.MsgspecError:
            raise CorruptData(
                "the warehouse's table does not say how its files are laid out",
                hint=f"someone changed its property {LAYOUT_PROPERTY}: `tideline rebuild` it",
            ) from None


_DECODER = msgspec.json.Decoder(TableLayout)
NO_LAYOUT = TableLayout()


def format_problem(layout: TableLayout, table_format: str) -> str | None:
    """Return what tables of ``table_format`` cannot have, and what to do; None if they can."""
    if table_format != DEFAULT_FORMAT:
        return None
    if layout.transforms:
        return f"partition_by has {layout.transforms[0]}, which {_ICEBERG_ALONE}: {_OTHERWISE}"
    if layout.partition_by and layout.cluster_by:
        return (
            f"partition_by and cluster_by exclude each other, both {_ICEBERG_ALONE}: leave one out"
        )
    return None


def layout_problem(
    layout: TableLayout, schema: TableSchema, mode: Mode, table_format: str = DEFAULT_FORMAT
) -> str | None:
    """Return why no target of ``schema`` can be made with ``layout``; None if one can."""
    if layout and mode is Mode.APPEND:
        return "a log of changes is partitioned by its batches: leave partition_by and cluster_by"
    problem = format_problem(layout, table_format)
    if problem is not None:
        return problem
    in_delta = table_format == DEFAULT_FORMAT
    checks = (
        *(_field_problem(one, schema, in_delta=in_delta) for one in layout.fields),
        *(_cluster_problem(name, schema, in_delta=in_delta) for name in layout.cluster_by),
    )
    return next((found for found in checks if found is not None), None)


def _field_problem(field: PartitionField, schema: TableSchema, *, in_delta: bool) -> str | None:
    unknown = _unknown("partition_by", field.column, schema)
    if unknown is not None:
        return unknown
    kind = schema.column(field.column).logical.kind
    taken = _FOLDERS if in_delta else KINDS[field.transform]
    if kind not in taken:
        known = ", ".join(sorted(one.value for one in taken))
        whose = "partitions"
        if field.transform is not Transform.IDENTITY:
            whose = f"{field.transform.value}s"
        return f"partition_by names {str(field)!r}, of type {kind.value}: {whose} are of {known}"
    if field.transform is not Transform.IDENTITY and field.name in schema.column_names:
        return (
            f"partition_by has {field}, whose partitions Iceberg names {field.name!r} as a column"
            " of the table is named: partition by another transform, or by that column"
        )
    return None


def _cluster_problem(name: str, schema: TableSchema, *, in_delta: bool) -> str | None:
    unknown = _unknown("cluster_by", name, schema)
    if unknown is not None:
        return unknown
    kind = schema.column(name).logical.kind
    if in_delta and kind in _NOT_CLUSTERED:
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
