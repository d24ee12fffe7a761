"""The part, a Parquet file of one table's rows in a segment: its own columns and its operations.

A part has `LOG_COLUMNS` first, then the table's columns, then those that only some rows need. What
a merge writes has some of these after the table's columns, by the same names. No one else's column
may begin with `RESERVED_PREFIX`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tideline.contract.schema import RESERVED_PREFIX

SEQ = RESERVED_PREFIX + "seq"
"""int64: the row's sequence."""
OP = RESERVED_PREFIX + "op"
"""string: `CREATED`, `UPDATED`, `DELETED` or `DUMPED`."""
TX = RESERVED_PREFIX + "tx"
"""int64: the transaction at the source, 0 for a dumped row."""
TS = RESERVED_PREFIX + "ts"
"""timestamp, UTC: when the transaction committed, by the source's clock."""
UNCHANGED = RESERVED_PREFIX + "unchanged"
"""list of strings: columns whose value the log does not hold because it did not change."""
OVERFLOW = RESERVED_PREFIX + "overflow"
"""map of strings: by column, the text of a value that its type cannot hold."""
BEFORE = RESERVED_PREFIX + "before_"
"""Of columns with the values before an update or delete: of the key, or of the whole row."""
IMAGE = RESERVED_PREFIX + "image"
"""boolean: whether the columns before hold the whole row."""
IMAGE_OVERFLOW = RESERVED_PREFIX + "image_overflow"
"""As `OVERFLOW`, of the row before."""
LOW = RESERVED_PREFIX + "low"
"""int64, in verification parts alone: the sequence at the chunk's low watermark."""
PENDING = RESERVED_PREFIX + "pending"
"""list of strings, in the warehouse alone: columns whose value is not known yet."""

LOG_COLUMNS = (SEQ, OP, TX, TS)
"""The first columns of every part, in this order."""

CREATED = "c"
UPDATED = "u"
DELETED = "d"
DUMPED = "r"
"""A row that a dump read."""
LOGGED = (CREATED, UPDATED, DELETED)
"""The operations of the log's rows."""


class PartCounts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The number of rows that hold more than a value of each column, from decoded rows up to a
    plan.

    ``unchanged_rows``, ``overflow_rows``: rows whose `UNCHANGED`, `OVERFLOW` is not NULL.
    ``before_rows``: rows whose key changed. ``before_image_rows``: rows that carry the whole row
    before (`IMAGE`). Documents about a part have these fields after their own.
    """

    unchanged_rows: int = 0
    before_rows: int = 0
    overflow_rows: int = 0
    before_image_rows: int = 0


NO_COUNTS = PartCounts()


def total(counts: Iterable[PartCounts]) -> PartCounts:
    """Return the sums, field by field."""
    every = tuple(counts)
    names = PartCounts.__struct_fields__
    return PartCounts(**{name: sum(getattr(one, name) for one in every) for name in names})
