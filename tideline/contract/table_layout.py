"""The layout of a warehouse table: by which columns its files are partitioned, clustered or sorted,
and whether it declares its key to take streamed rows.

A target records the layout that it was made with in one of its properties. Another one is given by
a rebuild. Which of them a format has: `tideline.contract.layout_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tideline.contract.errors import CorruptData
from tideline.contract.modes import Mode
from tideline.contract.partition_fields import PartitionField, Transform, parse_field

LAYOUT_PROPERTY = "tideline.layout"
"""The property in which a target records its layout; absent: neither partitioned nor clustered."""
CLUSTERING_COLUMNS_MAX = 4
"""The limit of the formats that have one."""


class TableLayout(msgspec.Struct, frozen=True, omit_defaults=True):
    """Partition fields in their text form, and columns that rows are clustered (in Iceberg tables:
    sorted) by. ``streamed``: a BigQuery table that declares its key, whose rows come through the
    Storage Write API; no MERGE can write it."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    streamed: bool = False

    def __bool__(self) -> bool:
        return bool(self.partition_by or self.cluster_by or self.streamed)

    def __str__(self) -> str:
        kinds = (("partitioned", self.partition_by), ("clustered", self.cluster_by))
        found = [f"{how} by {', '.join(map(repr, names))}" for how, names in kinds if names]
        found += ["written by streams"] if self.streamed else []
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
            tuple(map(str, fields)),
            tuple(names.get(name, name) for name in self.cluster_by),
            self.streamed,
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
