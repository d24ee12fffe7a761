"""The properties of a range of changes before its versions are made, and the columns passed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column

from tideline.contract.part import DELETED, OP
from tideline.contract.plan import PlannedEnd
from tideline.contract.schema import TableSchema
from tideline_spark.schemas import column as col
from tideline_spark.working_columns import MOVED_AWAY

FROM_SEQ = "_tl_valid_from_seq"
TO_SEQ = "_tl_valid_to_seq"
FROM = "_tl_valid_from"
TO = "_tl_valid_to"
CURRENT = "_tl_current"

SEED = "s"
"""The operation of a version that was open when the range began."""
NEXT = "_tl_next"
NEXT_TS = "_tl_next_ts"
END = "_tl_end"


@dataclass(frozen=True, slots=True)
class VersionContext:
    """The properties of the changes: their schema, whether any of them changes a key, the columns
    that some of them or of the seeds lack, the ends, and whether there are dumped rows.

    ``unasked``: columns that only the target has; they are never pending. ``dropped_at``: those of
    them whose value later versions lack, with the sequence at which the source dropped them.
    ``added_at``: columns with a default, and the sequence since which versions have it.
    """

    schema: TableSchema
    moved: bool = False
    fillable: tuple[str, ...] = ()
    ends: tuple[PlannedEnd, ...] = ()
    dumped: bool = False
    unasked: tuple[str, ...] = ()
    dropped_at: Mapping[str, int] = field(default_factory=dict)
    added_at: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> list[Column]:
        return [col(name) for name in self.schema.key]


def gone() -> Column:
    return col(OP).isin(DELETED, MOVED_AWAY)
