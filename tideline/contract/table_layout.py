"""The layout of a warehouse table: by which columns its files are partitioned or clustered.

A target records the layout that it was made with in one of its properties. Another one is given by
a rebuild.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.modes import Mode
from tideline.contract.schema import TableSchema
from tideline.contract.types import Kind

LAYOUT_PROPERTY = "tideline.layout"
"""The property in which a target records its layout; absent: neither partitioned nor clustered."""
CLUSTERING_COLUMNS_MAX = 4
"""The limit of the format."""
_PARTITIONS = frozenset(
    {Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.STRING, Kind.DATE}
)
"""Kinds by which tables are partitioned: each value is a folder, and read back exactly.

Not decimals and floats, whose text is not unique, nor timestamps, of which each is its own."""
_NOT_CLUSTERED = frozenset({Kind.BOOLEAN, Kind.BINARY})
"""Kinds of which files have no smallest and largest value."""


class TableLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Columns that files are partitioned by, or that rows are clustered by; not both."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.partition_by or self.cluster_by)

    def __str__(self) -> str:
        if not self:
            return "neither partitioned nor clustered"
        how, names = "partitioned", self.partition_by
        if self.cluster_by:
            how, names = "clustered", self.cluster_by
        return f"{how} by {', '.join(map(repr, names))}"

    def partitioned(self, mode: Mode) -> bool:
        """Return whether a table in ``mode`` has partitions: a log of changes has its own."""
        return bool(self.partition_by) or mode is Mode.APPEND

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.partition_by, *self.cluster_by)

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


def layout_problem(layout: TableLayout, schema: TableSchema, mode: Mode) -> str | None:
    """Return why no target of ``schema`` can be made with ``layout``; None if one can."""
    if layout and mode is Mode.APPEND:
        return "a log of changes is partitioned by its batches: leave partition_by and cluster_by"
    for name in layout.columns:
        key = "partition_by" if layout.partition_by else "cluster_by"
        if name not in schema.column_names:
            folded = {one.lower(): one for one in schema.column_names}
            near = difflib.get_close_matches(name.lower(), folded, n=1)
            meant = f"; did you mean {folded[near[0]]!r}?" if near else ""
            return f"{key} names {name!r}, a column that the source's table does not have{meant}"
        kind = schema.column(name).logical.kind
        if layout.partition_by and kind not in _PARTITIONS:
            known = ", ".join(sorted(one.value for one in _PARTITIONS))
            return f"{key} names {name!r}, of type {kind.value}: partitions are of {known}"
        if layout.cluster_by and kind in _NOT_CLUSTERED:
            return f"{key} names {name!r}, of type {kind.value}, by which no table is clustered"
    return None
