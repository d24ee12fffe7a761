"""Columns that only exist while a job works, and an operation: no part and no target has them.

Those that more than one module uses stand here, so that two meanings never get one name.
"""

from __future__ import annotations

FILE = "_tl_file"
"""string: the part that a row is of."""
ROW = "_tl_row"
"""A row as one value: a struct of its values, or their digest."""
ROWS = "_tl_rows"
"""int64: how many rows."""
RANK = "_tl_rank"
"""int32: a row's place among those of its key; 1 is the one that counts."""
GONE = "_tl_gone"
"""boolean: whether the row has to leave the target."""
SEQUENCE_NUMBER = "_tl_sequence_number"
"""string: where a row is in the order of all changes of its key, for a streamed table."""
ARRIVED = "_tl_arrived"
"""boolean: whether an update of its key brought the row here."""
LIFETIME_START = "_tl_lifetime_start"
"""boolean: the row begins a key lifetime: a run of a key's rows that one row of the source
produced."""
LIFETIME = "_tl_lifetime"
"""int64: the key lifetime that a row belongs to."""
MOVED_IN = "_tl_moved_in"
"""int64: the sequence of the move that began a key lifetime; NULL where none did."""
MOVED_OUT = "_tl_moved_out"
"""int64: the sequence of the move that ended a key lifetime; NULL where none did."""

MOVED_AWAY = "m"
"""The operation of a row at a key that an update left."""


def known_column(at: int) -> str:
    """Return the column of what is known of the fillable column at place ``at``."""
    return f"_tl_known_{at}"
